// Credentials with all that the API has: SCRAM, a client id, an expiry, a chosen password, rules from the beginning.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, test } from 'node:test'
import mqtt from 'mqtt'
import { answers, METHOD, Scram } from '../../millrace/tests/clients/scram.mjs'
import { Harness } from './harness.mjs'
import { ownerOf, Server, until } from './server.mjs'

let server
let harness
let owner
let broker
let at

before(async () => {
  server = await Server.make({ 'sign-up': 'anybody' })
  harness = await Harness.on(server)
  ;({ owner, broker, at } = await ownerOf(server))
})

after(async () => {
  await harness?.close()
  await server?.stop()
})

const on = (path, act) => harness.on(`${server.url}/b/${broker}${path}`, act, { api: owner })
const click = (place, name) => place.getByRole('button', { name, exact: true }).click()

/** Whether the server admits a client that proves `password` by SCRAM. */
async function proves(user, password) {
  const scram = new Scram(user, password)
  const client = mqtt.connect(`mqtt://127.0.0.1:${server.ports.mqtt}`, {
    protocolVersion: 5,
    reconnectPeriod: 0,
    clientId: user,
    // It names the broker. The exchange itself has the bare name.
    username: `${broker}/${user}`,
    properties: { authenticationMethod: METHOD, authenticationData: scram.first() },
  })
  client.handleAuth = answers(scram)
  try {
    return await Promise.race([
      once(client, 'connect').then(() => true),
      once(client, 'close').then(() => false),
    ])
  } catch {
    return false
  } finally {
    client.end(true)
  }
}

test('SCRAM: a client proves the password of a new credential, and of a rotated one', async () => {
  await on('/access', async (tab) => {
    const drawer = tab.getByRole('dialog')
    await click(tab, 'Create credential')
    await drawer.getByLabel('User').fill('pump-1')
    await drawer.getByLabel('SCRAM-SHA-256').press('Space')
    await click(drawer, 'Create credential')
    const first = await drawer.getByTestId('secret').textContent()
    await click(drawer, 'I have stored it')
    await until('the first proof', () => proves('pump-1', first))

    await click(tab, 'pump-1')
    assert.ok(await drawer.getByLabel('SCRAM-SHA-256').isChecked(), 'a rotation keeps SCRAM')
    await drawer.getByLabel('SCRAM-SHA-256').press('Space')
    await click(drawer, 'Rotate password')
    const second = await drawer.getByTestId('secret').textContent()
    await click(drawer, 'I have stored it')
    assert.equal((await owner.get(`${at}/credentials/pump-1`)).scram, false)
    await harness.device({ clientId: 'pump-1', username: `${broker}/pump-1`, password: second })
    assert.equal(await proves('pump-1', second), false)
  })
})
