// Shared by the tests of snippets. Each snippet of the page "Connect" is copied from the page and run as the page says. A snippet
// passes when its client receives the message that it published.
//
// SNIPPETS_TARGET is a folder for builds that the next run uses again.

import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { after, before } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Harness } from './harness.mjs'
import { Api, Server, until } from './server.mjs'

export const here = dirname(fileURLToPath(import.meta.url))
export const root = resolve(here, '../../..')
const target = process.env.SNIPPETS_TARGET ?? join(root, 'target/clients/snippets')
/** Compilers of Go and Rust take minutes on a busy machine, and so does a first download. */
export const BUILD_MS_MAX = 900_000

let server
let harness
export let folder
/** The page of a broker that admits everybody, and that of a broker that asks for the credential that the page made. */
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

export const has = (program) => spawnSync('sh', ['-c', `command -v ${program}`]).status === 0

/** Without the settings of this build: a pasted command must not write into the target folder of the workspace. */
export function environment(more = {}) {
  const { CARGO_TARGET_DIR, GOFLAGS, NODE_PATH, ...own } = process.env
  return { ...own, CARGO_TARGET_DIR: join(target, 'rust'), ...more }
}

/** Runs a pasted command until `isDone` finds something in what it printed, and ends it. */
export async function runs(command, { cwd = folder, env = environment(), msMax, isDone }) {
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
export function installed(command, env = environment()) {
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
export const received = (language) => (printed) => printed.includes(`hello/world hi from ${language}`)

async function inFolder(work) {
  folder = mkdtempSync(join(tmpdir(), 'snippet-'))
  try {
    await work()
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Each snippet without a credential, for a broker that admits everybody, and with one. */
export const both = (language, run) => async (t) => {
  for (const tab of pages) await inFolder(async () => run(t, await copied(tab, language)))
}
