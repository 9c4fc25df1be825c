// A real server for the tests of the console, on free ports of loopback.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { front } from './front.mjs'

/** Servers that are tried when others take their ports. */
const ATTEMPTS_MAX = 5

export const PASSWORD = 'a sentence that nobody else knows'

export async function freePort() {
  const socket = createServer().listen(0, '127.0.0.1')
  await once(socket, 'listening')
  const { port } = socket.address()
  socket.close()
  await once(socket, 'close')
  return port
}

/** Waits until `look` gives something. */
export async function until(what, look, msMax = 60_000) {
  const end = Date.now() + msMax
  for (;;) {
    const found = await look()
    if (found) return found
    if (Date.now() > end) throw new Error(`waited ${msMax} ms for ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** `millrace serve`, with the console of CONSOLE_DIST instead of its own when that is set. It can be killed and
 * started again with the same data and ports. */
export class Server {
  lines = []

  /** `flags` is an object of settings, or a function that gives one for the address of the server. */
  static async make(flags = {}) {
    for (let attempt = 1; ; attempt += 1) {
      const server = await Server.#prepared(flags)
      try {
        await server.start()
        return server
      } catch (error) {
        await server.stop()
        // Somebody else has taken one of the ports meanwhile.
        if (attempt === ATTEMPTS_MAX || !/address already in use/i.test(server.lines.join())) throw error
      }
    }
  }

  static async #prepared(flags) {
    const server = new Server()
    server.folder = mkdtempSync(join(tmpdir(), 'console-'))
    const [mqtt, ws] = [await freePort(), await freePort()]
    const [http, admin] = [await freePort(), await freePort()]
    server.ports = { mqtt, ws, http, admin }
    server.url = `http://127.0.0.1:${http}`
    server.admin = `http://127.0.0.1:${admin}`
    if (process.env.CONSOLE_DIST) {
      const folder = resolve(process.env.CONSOLE_DIST)
      server.fronts = [
        await front(folder, server.ports),
        await front(folder, { http: admin, ws }, 'operator.html'),
      ]
      server.url = server.fronts[0].url
      server.admin = server.fronts[1].url
    }
    server.flags = Object.entries({
      'mqtt-listen': `127.0.0.1:${mqtt}`,
      'ws-listen': `127.0.0.1:${ws}`,
      'http-listen': `127.0.0.1:${http}`,
      'admin-listen': `127.0.0.1:${admin}`,
      'data-dir': join(server.folder, 'data'),
      'outgoing-allow': '127.0.0.0/8',
      ...(typeof flags === 'function' ? flags(server.url) : flags),
    }).map(([name, value]) => `--${name}=${value}`)
    return server
  }

  async start() {
    const binary = process.env.MILLRACE ?? 'target/release/millrace'
    this.process = spawn(binary, ['serve', ...this.flags], { stdio: ['ignore', 'pipe', 'pipe'] })
    this.ended = once(this.process, 'close')
    const from = this.lines.length
    for (const input of [this.process.stderr, this.process.stdout]) {
      createInterface({ input }).on('line', (line) => this.lines.push(line))
    }
    await until('the server to start', () => {
      if (this.process.exitCode !== null) throw new Error(this.lines.slice(-3).join('\n'))
      // With a public URL the server prints no link for this machine.
      const isPublic = this.flags.some((flag) => flag.startsWith('--public-url='))
      const isLast = (line) => (isPublic ? line.includes('data_dir=') : line.startsWith('Console: '))
      return this.lines.slice(from).some(isLast)
    })
  }

  /** The token of a link that the server prints or logs: behind "/sign-up#", or "/#local=". */
  link(path, name) {
    const pattern = new RegExp(`${path}#${name ? `${name}=` : ''}(\\S+)`)
    return this.lines.map((line) => pattern.exec(line)?.[1]).findLast(Boolean)
  }

  async kill() {
    this.process.kill('SIGKILL')
    await this.ended
  }

  async stop() {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      this.process.kill('SIGINT')
    }
    await this.ended
    for (const front of this.fronts ?? []) front.stop()
    rmSync(this.folder, { recursive: true })
  }
}

/** A session with the API, for what a test prepares. */
export class Api {
  cookie = ''
  csrf = ''

  constructor(url) {
    this.url = url
  }

  async ask(method, path, body, headers = {}) {
    const answer = await fetch(`${this.url}/api/v1${path}`, {
      method,
      headers: {
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        cookie: this.cookie,
        'x-csrf-token': this.csrf,
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    })
    const text = await answer.text()
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`)
    for (const set of answer.headers.getSetCookie()) this.cookie = set.split(';')[0]
    const value = text === '' ? null : JSON.parse(text)
    this.csrf = value?.csrf_token ?? this.csrf
    return value
  }

  get = (path) => this.ask('GET', path)
  post = (path, body = {}) => this.ask('POST', path, body)
  put = (path, body, headers = { 'if-none-match': '*' }) => this.ask('PUT', path, body, headers)

  /** Makes an account, with a token where the server wants one. The path of the new organisation. */
  async signUp(name, token) {
    const email = `${name.toLowerCase()}@example.org`
    const me = await this.post('/sign-up', { email, password: PASSWORD, name, ...(token && { token }) })
    this.email = email
    return me.organisations[0] && `/organisations/${me.organisations[0].id}`
  }
}

/** The person who owns the server, with a broker. `at`: the API's path of the broker. */
export async function ownerOf(server) {
  const owner = new Api(server.url)
  const organisation = await owner.signUp('Ann', server.link('/sign-up'))
  const broker = (await owner.post(`${organisation}/brokers`, { display_name: 'Plant 7' })).name
  return { owner, organisation, broker, at: `${organisation}/brokers/${broker}` }
}
