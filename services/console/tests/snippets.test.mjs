// Each snippet of the page "Connect" is copied from the page and run as the page says. A snippet passes when its client
// receives the message that it published.
//
// SNIPPETS_PYTHON is a Python that has paho-mqtt. SNIPPETS_TARGET is a folder for builds that the next run uses again.

import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Harness } from './harness.mjs'
import { Api, Server, until } from './server.mjs'

const here = dirname(fileURLToPath(import.meta.url))
const root = resolve(here, '../../..')
const target = process.env.SNIPPETS_TARGET ?? join(root, 'target/clients/snippets')
const python = process.env.SNIPPETS_PYTHON ?? join(root, 'target/clients/python/bin/python')
/** Compilers of Go and Rust take minutes on a busy machine, and so does a first download. */
const BUILD_MS_MAX = 900_000

let server
let harness
let folder
/** The page of a broker without authentication, and that of a broker that asks for the credential that the page made. */
let pages

before(async () => {
  server = await Server.make()
  harness = await Harness.on(server)
  const owner = new Api(server.url)
  const organisation = await owner.signUp('Ann', server.link('/sign-up'))
  const { name } = await owner.post(`${organisation}/brokers`, { display_name: 'Snippets' })
  const { tab: open, context } = await harness.visitor(owner)
  const guarded = await context.newPage()
  await open.goto(new URL('/b/default/connect', server.url).href)
  await guarded.goto(new URL(`/b/${name}/connect`, server.url).href)
  await guarded.getByRole('button', { name: 'Create credential' }).click()
  await guarded.getByTestId('secret').waitFor()
  pages = [open, guarded]
})

after(async () => {
  await harness?.close()
  await server?.stop()
})

/** The code that a person copies from the tab of a language. */
async function copied(tab, language) {
  // A page in the background has no clipboard.
  await tab.bringToFront()
  await tab.getByRole('tab', { name: language, exact: true }).click()
  const panel = tab.getByRole('tabpanel', { name: language })
  const copy = async (label) => {
    const button = panel.getByRole('button', { name: `Copy ${label}`, exact: true })
    if ((await button.count()) === 0) return null
    await tab.evaluate(() => navigator.clipboard.writeText(''))
    await button.click()
    return until(`the copy of ${label}`, () => tab.evaluate(() => navigator.clipboard.readText()))
  }
  await panel.locator('pre').first().waitFor()
  return {
    install: await copy('the installation'),
    file: await panel.getByTestId('file').textContent(),
    code: await copy('the snippet'),
    run: await copy('the run command'),
  }
}

const has = (program) => spawnSync('sh', ['-c', `command -v ${program}`]).status === 0

/** Without the settings of this build: a pasted command must not write into the target folder of the workspace. */
function environment(more = {}) {
  const { CARGO_TARGET_DIR, GOFLAGS, NODE_PATH, ...own } = process.env
  return { ...own, CARGO_TARGET_DIR: join(target, 'rust'), ...more }
}

/** Runs a pasted command until `isDone` finds something in what it printed, and ends it. */
async function runs(command, { cwd = folder, env = environment(), msMax, isDone }) {
  // A group of processes of its own, because `go run` and `cargo run` start the program as a child.
  const shell = spawn('sh', ['-c', command], { cwd, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  let printed = ''
  for (const stream of [shell.stdout, shell.stderr]) stream.on('data', (data) => (printed += data))
  let ended
  shell.on('close', (code) => (ended = code ?? 'a signal'))
  try {
    return await until(
      `"${command}"`,
      async () => {
        if (await isDone(printed)) return true
        if (ended !== undefined) throw new Error(`"${command}" ended with ${ended}: ${printed.slice(-2000)}`)
      },
      msMax,
    ).catch((error) => {
      throw new Error(`${error.message}; it printed: ${printed.slice(-2000)}`)
    })
  } finally {
    try {
      process.kill(-shell.pid, 'SIGKILL')
    } catch {}
    await until('the snippet to end', () => ended !== undefined)
  }
}

/** Runs the installation as pasted, in an empty folder. The folder in which it ends, or why a registry is out of reach. */
function installed(command, env = environment()) {
  const where = join(folder, 'where.txt')
  const done = spawnSync('sh', ['-c', `${command} && pwd >"$WHERE"`], {
    cwd: folder,
    env: { ...env, WHERE: where },
    encoding: 'utf8',
    timeout: BUILD_MS_MAX,
  })
  if (done.status === 0) return { cwd: readFileSync(where, 'utf8').trim() }
  const said = `${done.stdout}${done.stderr}`
  const isAway =
    /dial tcp|lookup .*: |i\/o timeout|TLS handshake|disabled by GOPROXY|failed to (download|fetch|query)|network|resolve host|ENOTFOUND|ETIMEDOUT|ECONN/i
  assert.match(said, isAway, `"${command}" failed: ${said.slice(-2000)}`)
  return { away: said.trim().split('\n').at(-1) }
}

/** Output of each snippet's callback for the message that the snippet published. */
const received = (language) => (printed) => printed.includes(`hello/world hi from ${language}`)

async function inFolder(work) {
  folder = mkdtempSync(join(tmpdir(), 'snippet-'))
  try {
    await work()
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Each snippet without a credential, for a broker without authentication, and with one. */
const both = (language, run) => async (t) => {
  for (const tab of pages) await inFolder(async () => run(t, await copied(tab, language)))
}

test(
  'snippet: mosquitto',
  { skip: !has('mosquitto_sub') && 'mosquitto_sub is not installed (Debian: mosquitto-clients)' },
  both('mosquitto', async (_, { code }) => {
    const [, subscribe, publish] = /^# in one terminal\n(.+)\n\n# in another one\n(.+)$/.exec(code) ?? []
    assert.ok(subscribe && publish, code)
    // The subscriber prints nothing when it has subscribed, so the other command is pasted until it answers.
    const isDone = async (printed) => {
      if (printed.includes('hello/world hi')) return true
      const sent = spawnSync('sh', ['-c', publish], { encoding: 'utf8', timeout: 60_000 })
      assert.equal(sent.status, 0, `${publish}: ${sent.stderr}`)
      return false
    }
    await runs(subscribe, { isDone })
  }),
)

const hasPaho = spawnSync(python, ['-c', 'import paho.mqtt.client']).status === 0

test(
  'snippet: Python',
  { skip: !hasPaho && `${python} has no paho-mqtt` },
  both('Python', async (_, { file, code, run }) => {
    writeFileSync(join(folder, file), code)
    mkdirSync(join(folder, 'bin'))
    // A link to the program of a virtual environment loses the environment.
    const script = `#!/bin/sh\nexec "${python}" -u "$@"\n`
    writeFileSync(join(folder, 'bin/python3'), script, { mode: 0o755 })
    const env = environment({ PATH: `${join(folder, 'bin')}:${process.env.PATH}` })
    await runs(run, { env, isDone: received('Python') })
  }),
)

test(
  'snippet: JavaScript',
  both('JavaScript', async (_, { file, code, run }) => {
    writeFileSync(join(folder, file), code)
    symlinkSync(resolve(here, '../node_modules'), join(folder, 'node_modules'))
    await runs(run, { isDone: received('JavaScript') })
  }),
)

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

for (const language of ['Arduino', 'ESP-IDF']) {
  test(`snippet: ${language}`, {
    skip: 'no toolchain is installed for it; README.md says how it was checked by hand',
  }, () => {})
}
