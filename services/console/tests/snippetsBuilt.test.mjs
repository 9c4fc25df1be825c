// Snippets of languages with a compiler, copied from the page and run as the page says.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { BUILD_MS_MAX, both, environment, folder, has, installed, received, runs } from './snippetRuns.mjs'

test(
  'snippet: Go',
  { skip: !has('go') && 'go is not installed' },
  both('Go', async (t, { install, file, code, run }) => {
    const { cwd, away } = installed(install)
    if (away) return t.skip(`the library cannot be downloaded here: ${away}`)
    writeFileSync(join(cwd, file), code)
    const vet = spawnSync('go', ['vet', '.'], {
      cwd,
      env: environment(),
      encoding: 'utf8',
      timeout: BUILD_MS_MAX,
    })
    assert.equal(vet.status, 0, vet.stderr)
    await runs(run, { cwd, msMax: BUILD_MS_MAX, isDone: received('Go') })
  }),
)

test(
  'snippet: Rust',
  { skip: !has('cargo') && 'cargo is not installed' },
  both('Rust', async (t, { install, file, code, run }) => {
    const { cwd, away } = installed(install)
    if (away) return t.skip(`the library cannot be downloaded here: ${away}`)
    writeFileSync(join(cwd, file), code)
    await runs(run, { cwd, msMax: BUILD_MS_MAX, isDone: received('Rust') })
  }),
)

test(
  'snippet: Java',
  { skip: !(has('mvn') && has('javac')) && 'Maven and a JDK are not installed' },
  both('Java', async (t, { install, file, code }) => {
    const [group, artifact, version] = install.split(':')
    const dependency = `<groupId>${group}</groupId><artifactId>${artifact}</artifactId><version>${version}</version>`
    writeFileSync(
      join(folder, 'pom.xml'),
      `<project><modelVersion>4.0.0</modelVersion><groupId>hello</groupId><artifactId>hello</artifactId><version>1</version>
      <dependencies><dependency>${dependency}</dependency></dependencies></project>`,
    )
    const resolved = spawnSync(
      'mvn',
      ['--quiet', '--batch-mode', 'dependency:build-classpath', '-Dmdep.outputFile=classpath.txt'],
      { cwd: folder, encoding: 'utf8', timeout: BUILD_MS_MAX },
    )
    if (resolved.status !== 0) {
      const said = `${resolved.stdout}${resolved.stderr}`
      assert.match(said, /transfer|timed out|Unknown host|offline/i, said)
      return t.skip('the library cannot be downloaded here (mvn dependency:build-classpath)')
    }
    writeFileSync(join(folder, file), code)
    await runs(`exec java -cp "$(cat classpath.txt)" ${file}`, {
      msMax: BUILD_MS_MAX,
      isDone: received('Java'),
    })
  }),
)
