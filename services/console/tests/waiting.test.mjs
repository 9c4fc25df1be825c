// Streams, and what people and operators read of the last start. The server and its clients are real.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Harness, serious, settled } from './harness.mjs'
import { ownerOf, Server } from './server.mjs'

let server
let harness
let owner
let organisation

before(async () => {
  server = await Server.make({ 'sign-up': 'anybody' })
  harness = await Harness.on(server)
  ;({ owner, organisation } = await ownerOf(server))
})

after(async () => {
  await harness?.close()
  await server?.stop()
})

const on = (path, act) => harness.on(`${server.url}${path}`, act, { api: owner })

/** A client that leaves a session behind. */
async function away(clientId, ...filters) {
  const client = await harness.device({
    clientId,
    clean: false,
    properties: { sessionExpiryInterval: 3600 },
  })
  for (const filter of filters) await client.subscribeAsync(filter, { qos: 1 })
  await client.endAsync()
}

test('streams: what waits, for whom, and since when', async () => {
  await on('/b/default/streams', (tab) => tab.getByText('No stream', { exact: true }).waitFor())
  await away('reader', 'plant/#')
  await away('printer-1', '$share/printers/plant/+/state')
  await away('printer-2', '$share/printers/plant/+/state')
  const device = await harness.device({ clientId: 'press-1' })
  await device.publishAsync('plant/1/state', 'on', { qos: 1 })
  await away('late', 'plant/#')
  for (const topic of ['plant/1/state', 'plant/1/pressure']) await device.publishAsync(topic, '7', { qos: 1 })
  await on('/b/default/streams', async (tab) => {
    const rows = tab.getByRole('table', { name: 'Streams' }).getByRole('row')
    const group = rows.filter({ hasText: 'group of 2 sessions' })
    await group.getByRole('cell', { name: '2', exact: true }).waitFor()
    assert.deepEqual(await serious(tab), [])
    await tab.getByLabel('Search streams').fill('printers')
    await rows.filter({ hasText: /^plant\/#/ }).waitFor({ state: 'detached' })
    await tab.getByLabel('Search streams').fill('')
    await rows.filter({ hasText: /^plant\/#/ }).click()
    const drawer = tab.getByRole('dialog')
    await drawer.getByText('3 messages, ').waitFor()
    for (const [session, waiting] of [
      ['reader', '3'],
      ['late', '2'],
    ]) {
      const row = drawer.getByRole('row').filter({ hasText: session })
      await row.getByRole('cell', { name: waiting, exact: true }).waitFor()
      await row.getByText('offline').waitFor()
    }
    assert.deepEqual(await serious(tab), [])
    await tab.goto(`${server.url}/b/default/streams?stream=%24share%2Fprinters%2Fplant%2F%2B%2Fstate`)
    await drawer.getByText('2 members of the group').waitFor()
    // Stored, and waiting for the group.
    const both = drawer.getByText(/^2 messages, \d+ B$/)
    await both.nth(1).waitFor()
    await drawer.getByRole('link', { name: 'printer-2' }).click()
    await tab.getByRole('dialog', { name: 'Session printer-2' }).waitFor()
  })
  await owner.ask('DELETE', `${organisation}/brokers/default/sessions/reader`)
  await owner.ask('DELETE', `${organisation}/brokers/default/sessions/late`)
  await on('/b/default/streams?stream=plant%2F%23', (tab) =>
    tab.getByText('There is no stream of this filter').waitFor(),
  )
})

test('the last start: a new folder, and after a kill no acknowledged commit that is lost', async () => {
  await harness.on(`${server.admin}/`, async (tab) => {
    await tab.getByText('with a data folder in which no commit was acknowledged').waitFor()
  })
  await server.kill()
  await server.start()
  await harness.on(`${server.admin}/`, async (tab) => {
    await settled(tab)
    await tab.getByText('0 acknowledged commits lost').waitFor()
    await tab.getByText(/^The checksums of [\d,]+ commits in the journals were right\.$/).waitFor()
    assert.deepEqual(await serious(tab), [])
  })
  await on('/b/default', (tab) => tab.getByText('0 acknowledged commits lost').waitFor())
})
