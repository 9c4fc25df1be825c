// Codes of an authenticator app: RFC 6238 with SHA-1, six digits and steps of 30 s.

import { createHmac } from 'node:crypto'

const STEP_MS = 30_000
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'

/** An app that shows each code once: the server does not take one again. */
export class Authenticator {
  #key
  #last = 0

  constructor(secret) {
    const bits = [...secret].map((one) => ALPHABET.indexOf(one).toString(2).padStart(5, '0')).join('')
    this.#key = Buffer.from(bits.match(/.{8}/g).map((byte) => Number.parseInt(byte, 2)))
  }

  /** The code of a step that was not shown yet, at most one step ahead; waits for that when it has to. */
  async next() {
    const now = () => Math.floor(Date.now() / STEP_MS)
    const step = Math.max(now(), this.#last + 1)
    while (step > now() + 1) await new Promise((resolve) => setTimeout(resolve, 250))
    this.#last = step
    return this.at(step)
  }

  at(step) {
    const counter = Buffer.alloc(8)
    counter.writeBigUInt64BE(BigInt(step))
    const digest = createHmac('sha1', this.#key).update(counter).digest()
    const offset = digest[19] & 15
    return String((digest.readUInt32BE(offset) & 0x7fffffff) % 1_000_000).padStart(6, '0')
  }
}
