// Snippets that run without a compiler, copied from the page. Compiled languages are in snippetsBuilt.test.mjs.
//
// SNIPPETS_PYTHON is a Python that has paho-mqtt.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'node:test'
import { both, environment, folder, has, here, received, root, runs } from './snippetRuns.mjs'

const python = process.env.SNIPPETS_PYTHON ?? join(root, 'target/clients/python/bin/python')

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

for (const language of ['Arduino', 'ESP-IDF']) {
  test(`snippet: ${language}`, {
    skip: 'no toolchain is installed for it; README.md says how it was checked by hand',
  }, () => {})
}
