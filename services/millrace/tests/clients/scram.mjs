// The client's side of SCRAM-SHA-256 for MQTT.js, which calls `handleAuth` for each AUTH packet. Used by the suite `scram` and by the tests of
// the console.

import assert from 'node:assert/strict'
import { createHash, createHmac, pbkdf2Sync, randomBytes, timingSafeEqual } from 'node:crypto'

export const METHOD = 'SCRAM-SHA-256'

const hmac = (key, text) => createHmac('sha256', key).update(text).digest()

/** The client's side of an exchange (RFC 5802). */
export class Scram {
  constructor(user, password) {
    this.password = password
    this.bare = `n=${user},r=${randomBytes(18).toString('base64')}`
  }

  first() {
    return Buffer.from(`n,,${this.bare}`)
  }

  last(challenge) {
    const [nonce, salt, rounds] = challenge.split(',').map((part) => part.slice(2))
    const salted = pbkdf2Sync(this.password, Buffer.from(salt, 'base64'), Number(rounds), 32, 'sha256')
    // "biws" is the header "n,," of the first message in Base64.
    const withoutProof = `c=biws,r=${nonce}`
    const signed = `${this.bare},${challenge},${withoutProof}`
    const key = hmac(salted, 'Client Key')
    const mask = hmac(createHash('sha256').update(key).digest(), signed)
    this.expected = hmac(hmac(salted, 'Server Key'), signed)
    const proof = Buffer.from(key.map((byte, at) => byte ^ mask[at]))
    return Buffer.from(`${withoutProof},p=${proof.toString('base64')}`)
  }

  believes(last) {
    return timingSafeEqual(Buffer.from(last.toString().slice(2), 'base64'), this.expected)
  }
}

export const auth = (reasonCode, authenticationData) => ({
  cmd: 'auth',
  reasonCode,
  properties: { authenticationMethod: METHOD, authenticationData },
})

/** The SCRAM side of a client, which answers AUTH packets; `succeeded` gets the data of the last one. */
export const answers = (scram, succeeded = () => {}) => (packet, done) => {
  assert.equal(packet.properties.authenticationMethod, METHOD)
  const data = packet.properties.authenticationData
  if (packet.reasonCode === 0) done(null, succeeded(data))
  else done(null, auth(0x18, scram.last(data.toString())))
}
