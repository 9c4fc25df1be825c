// A server whose brokers have names of their own, instead of prefixes of user names.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Harness, settled } from './harness.mjs'
import { Api, Server } from './server.mjs'

let server
let harness

before(async () => {
  server = await Server.make({ 'endpoint-domain': 'mqtt.localhost' })
  harness = await Harness.on(server)
})

after(async () => {
  await harness?.close()
  await server?.stop()
})

test('with a domain of endpoints, commands and snippets have a user and a password unless anonymous clients may connect', async () => {
  const owner = new Api(server.url)
  const organisation = await owner.signUp('Ann', server.link('/sign-up'))
  const { name } = await owner.post(`${organisation}/brokers`, { display_name: 'Plant 7' })
  const { tab, context, complaints } = await harness.visitor(owner)
  for (const broker of ['default', name]) {
    for (const page of ['', '/connect']) {
      await tab.goto(`${server.url}/b/${broker}${page}`)
      await settled(tab)
      const command = tab.locator('pre', { hasText: 'mosquitto_pub' }).first()
      await command.waitFor()
      const text = await command.textContent()
      assert.match(text, new RegExp(`-h ${broker}\\.mqtt\\.localhost`))
      // The settings of a server on this machine admit anonymous clients to its own broker.
      if (broker === 'default') assert.doesNotMatch(text, / -u /)
      else assert.match(text, /-u USER -P PASSWORD/)
    }
  }
  assert.deepEqual(complaints, [])
  await context.close()
})
