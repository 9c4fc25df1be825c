// The server, the account, the broker and the browser that most files of browser tests need.

import { after } from 'node:test'
import { Harness } from './harness.mjs'
import { ownerOf, Server } from './server.mjs'

/** A server with an account and a broker, and a browser for it, until all tests of the file have ended. */
export async function stage() {
  const server = await Server.make({ 'sign-up': 'anybody' })
  let harness
  after(async () => {
    await harness?.close()
    await server.stop()
  })
  harness = await Harness.on(server)
  return { server, harness, ...(await ownerOf(server)) }
}
