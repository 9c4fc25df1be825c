// People sign in with a provider of identities: a server with the setting oidc_issuer, and oidc-provider, whose pages are gone
// through as a browser does.
//
// Run by run.sh, with NODE_CLIENTS set to the folder in which the clients are installed, and MILLRACE to the broker.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { after, before, test } from 'node:test'
import { pathToFileURL } from 'node:url'

const { Provider } = await import(pathToFileURL(createRequire(`${process.env.NODE_CLIENTS}/`).resolve('oidc-provider')))
const SECRET = 'between us: 100% + more'
const folder = mkdtempSync(join(tmpdir(), 'oidc-'))
let provider, server, base, token

const freePort = async () => {
  const socket = createServer().listen(0, '127.0.0.1')
  await once(socket, 'listening')
  const { port } = socket.address()
  socket.close()
  await once(socket, 'close')
  return port
}

const account = (id) => ({
  accountId: id,
  claims: () => ({ sub: id, email: `${id}@example.org`, email_verified: true, name: `The ${id}` }),
})

before(async () => {
  base = `http://127.0.0.1:${await freePort()}`
  const issuer = `http://127.0.0.1:${await freePort()}`
  const client = {
    client_id: 'millrace',
    client_secret: SECRET,
    redirect_uris: [`${base}/api/v1/sign-in/oidc/callback`],
  }
  // The token says no more than it must, so the rest is asked for.
  const claims = { email: ['email', 'email_verified'], profile: ['name'] }
  provider = new Provider(issuer, { clients: [client], claims, findAccount: (_, id) => account(id) })
  provider = provider.listen(new URL(issuer).port, '127.0.0.1')
  await once(provider, 'listening')
  writeFileSync(join(folder, 'secret'), `${SECRET}\n`)
  const settings = {
    'mqtt-listen': '127.0.0.1:0',
    'ws-listen': 'off',
    'http-listen': new URL(base).host,
    'data-dir': join(folder, 'data'),
    'public-url': base,
    'oidc-issuer': issuer,
    'oidc-client-id': 'millrace',
    'oidc-client-secret-file': join(folder, 'secret'),
    'oidc-name': 'Plant login',
  }
  const flags = Object.entries(settings).map(([name, value]) => `--${name}=${value}`)
  server = spawn(process.env.MILLRACE, ['serve', ...flags], { stdio: ['ignore', 'ignore', 'pipe'] })
  const lines = []
  for await (const line of createInterface({ input: server.stderr })) {
    lines.push(line)
    token ??= /\/sign-up#(\S+)/.exec(line)?.[1]
    if (token && lines.some((line) => line.includes('HTTP is open'))) break
  }
  assert.ok(token, lines.join('\n'))
  server.stderr.resume()
})

after(async () => {
  server.kill('SIGTERM')
  const [code] = await once(server, 'exit')
  provider.closeAllConnections()
  provider.close()
  rmSync(folder, { recursive: true })
  assert.equal(code, 0)
})

/** A browser: it keeps cookies, and goes where it is sent. */
class Browser {
  cookies = new Map()

  async go(url, form) {
    for (let hops = 0; hops < 20; hops++) {
      const cookie = [...this.cookies].map(([name, value]) => `${name}=${value}`).join('; ')
      const method = form ? 'POST' : 'GET'
      const body = form && new URLSearchParams(form)
      const answer = await fetch(url, { method, body, headers: { cookie }, redirect: 'manual' })
      for (const set of answer.headers.getSetCookie()) {
        const [, name, value] = /^([^=]+)=([^;]*)/.exec(set)
        this.cookies.set(name, value)
      }
      if (answer.status < 300 || answer.status >= 400) return { url, answer, text: await answer.text() }
      ;[url, form] = [new URL(answer.headers.get('location'), url).href, undefined]
    }
    throw new Error('sent around for ever')
  }

  /** Signs in at the provider, and comes back. */
  async signIn(login, token) {
    const at = `${base}/api/v1/sign-in/oidc`
    let page = await this.go(token ? await this.begin(at, { token }) : at)
    while (page.url.includes('/interaction/')) {
      const prompt = /name="prompt" value="(\w+)"/.exec(page.text)[1]
      page = await this.go(page.url, { prompt, login, password: 'x' })
    }
    return page
  }

  /** Asks with JSON where to continue, as a page does. */
  async begin(url, body) {
    const headers = { 'content-type': 'application/json' }
    const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) })
    assert.equal(answer.status, 200)
    for (const set of answer.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(set)
      this.cookies.set(name, value)
    }
    return (await answer.json()).location
  }

  async me() {
    return (await this.go(`${base}/api/v1/me`)).text
  }
}

test('the first person comes by the provider, with the secret of the log', async () => {
  const browser = new Browser()
  const refused = await browser.signIn('ann')
  assert.equal(refused.answer.status, 403, refused.text)
  assert.match(refused.text, /by invitation/)
  const page = await browser.signIn('ann', token)
  assert.equal(page.url, `${base}/`, page.text)
  const me = JSON.parse(await browser.me())
  assert.equal(me.user.email, 'ann@example.org')
  assert.equal(me.user.name, 'The ann')
  assert.equal(me.organisations[0].role, 'owner')
  assert.ok(me.csrf_token)
})

test('who has an account signs in from another browser', async () => {
  const browser = new Browser()
  assert.equal((await browser.signIn('ann')).url, `${base}/`)
  const me = JSON.parse(await browser.me())
  assert.equal(me.user.email, 'ann@example.org')
})

test('who was not invited does not get in', async () => {
  const browser = new Browser()
  assert.equal((await browser.signIn('bob')).answer.status, 403)
  assert.match(await browser.me(), /sign in/)
})

test('who goes back at the provider is told so', async () => {
  const browser = new Browser()
  const page = await browser.go(`${base}/api/v1/sign-in/oidc`)
  const abort = /href="([^"]+\/abort)"/.exec(page.text)[1]
  const back = await browser.go(new URL(abort, page.url).href)
  assert.equal(back.answer.status, 403)
  assert.match(back.text, /access_denied/)
})
