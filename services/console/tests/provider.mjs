// An OpenID Connect provider that asks nobody for a password: the tests say who is signed in there.

import { createHash, generateKeyPairSync, randomUUID, sign } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'

const KEY_ID = '1'
const base64url = (text) => Buffer.from(text).toString('base64url')

export class IdentityProvider {
  /** The account whose browser comes: `sub`, `email`, `name`. */
  account = {}
  #key = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  #codes = new Map()

  static async start() {
    const provider = new IdentityProvider()
    provider.server = createServer((request, answer) => provider.#answer(request, answer))
    provider.server.listen(0, '127.0.0.1')
    await once(provider.server, 'listening')
    provider.url = `http://127.0.0.1:${provider.server.address().port}`
    return provider
  }

  stop() {
    this.server.closeAllConnections()
    this.server.close()
  }

  async #answer(request, answer) {
    const { pathname, searchParams } = new URL(request.url, this.url)
    const json = (value, status = 200) =>
      answer.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
    if (pathname === '/.well-known/openid-configuration') {
      json({
        issuer: this.url,
        authorization_endpoint: `${this.url}/authorize`,
        token_endpoint: `${this.url}/token`,
        jwks_uri: `${this.url}/keys`,
      })
    } else if (pathname === '/keys') {
      const key = this.#key.publicKey.export({ format: 'jwk' })
      json({ keys: [{ ...key, kid: KEY_ID, use: 'sig', alg: 'ES256' }] })
    } else if (pathname === '/authorize') {
      const code = randomUUID()
      this.#codes.set(code, { asked: Object.fromEntries(searchParams), account: this.account })
      const back = new URL(searchParams.get('redirect_uri'))
      back.search = new URLSearchParams({ code, state: searchParams.get('state') })
      answer.writeHead(303, { location: back.href }).end()
    } else if (pathname === '/token') {
      const chunks = []
      for await (const chunk of request) chunks.push(chunk)
      const form = new URLSearchParams(Buffer.concat(chunks).toString())
      const begun = this.#codes.get(form.get('code'))
      this.#codes.delete(form.get('code'))
      const challenge = createHash('sha256')
        .update(form.get('code_verifier') ?? '')
        .digest('base64url')
      if (begun?.asked.code_challenge !== challenge) json({ error: 'invalid_grant' }, 400)
      else json({ id_token: this.#token(begun), access_token: randomUUID(), token_type: 'Bearer' })
    } else answer.writeHead(404).end()
  }

  #token({ asked, account }) {
    const now = Math.floor(Date.now() / 1000)
    const claims = { iss: this.url, aud: asked.client_id, nonce: asked.nonce, iat: now, exp: now + 300 }
    const parts = [
      { alg: 'ES256', kid: KEY_ID },
      { ...claims, email_verified: true, ...account },
    ]
    const signed = parts.map((part) => base64url(JSON.stringify(part))).join('.')
    const key = { key: this.#key.privateKey, dsaEncoding: 'ieee-p1363' }
    return `${signed}.${sign('sha256', Buffer.from(signed), key).toString('base64url')}`
  }
}
