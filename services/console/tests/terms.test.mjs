// The terms of a new broker, and the cost of a month without a cap. The server and its clients are real.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Harness, serious } from './harness.mjs'
import { Api, ownerOf, Server } from './server.mjs'

let server
let harness
let owner
let organisation

before(async () => {
  server = await Server.make({
    'sign-up': 'anybody',
    region: 'north-1',
    price: 'messages_in=1000000000000',
    'usage-interval-s': 1,
    currency: 'EUR',
  })
  harness = await Harness.on(server)
  ;({ owner, organisation } = await ownerOf(server))
})

after(async () => {
  await harness?.close()
  await server?.stop()
})

const on = (path, act) => harness.on(new URL(path, server.url).href, act, { api: owner })

async function operator(method, path, body) {
  const answer = await fetch(`${server.admin}/v1/operator${path}`, {
    method,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  assert.ok(answer.ok, await answer.text())
}

test('a new broker: its region, the plan that applies, and the prices', async () => {
  await on('/brokers/new', async (tab) => {
    await tab.getByText('None. The limits of the server apply.').waitFor()
    await tab.getByText('north-1').waitFor()
    await tab.getByText('1,000,000.00 EUR').waitFor()
    assert.equal(await tab.getByText('Messages delivered').count(), 0, 'a unit that costs nothing')
    assert.deepEqual(await serious(tab), [])
  })
  await operator('PUT', '/plans/small', {
    ceiling: { broker: { connections: 1000 }, client: { packet_bytes: 65_536 } },
  })
  await operator('PUT', '/plans/large', { ceiling: {}, is_public: true })
  await operator('PUT', `/tenants/${organisation.split('/').at(-1)}/plan`, { plan: 'small' })
  await on(`${server.admin}/tenants?tenant=${organisation.split('/').at(-1)}`, (tab) =>
    tab.getByRole('dialog').getByText('small', { exact: true }).waitFor(),
  )
  await on('/brokers/new', async (tab) => {
    await tab.getByText('small', { exact: true }).waitFor()
    await tab.getByText('large. The operator assigns a plan to your organisation.').waitFor()
    const panel = tab.locator('section', { hasText: 'Region, plan and prices' })
    for (const said of ['Connections', '1,000', 'Largest packet', '65,536 B']) {
      await panel.getByText(said, { exact: true }).waitFor()
    }
    assert.deepEqual(await serious(tab), [])
    await tab.getByRole('button', { name: 'Create broker' }).click()
    await tab.getByText('Waiting for a device').first().waitFor()
  })
})

test('a person of two organisations chooses where a new broker goes', async () => {
  const person = new Api(server.url)
  const own = await person.signUp('Paula')
  const other = await person.post('/organisations', { name: (await person.get(own)).name })
  await harness.on(
    `${server.url}/brokers/new`,
    async (tab) => {
      const create = tab.getByRole('button', { name: 'Create broker' })
      assert.equal(await create.isDisabled(), true)
      await tab.getByRole('combobox', { name: 'Organisation' }).click()
      await tab.getByRole('option', { name: `(id …${other.id.slice(-6)})` }).click()
      assert.deepEqual(await serious(tab), [])
      await create.click()
      await tab.getByText('Waiting for a device').first().waitFor()
    },
    { api: person },
  )
  assert.equal((await person.get(`/organisations/${other.id}/brokers`)).items.length, 1)
})

test('without a cap, the usage page says what the month has cost and where it leads', async () => {
  const device = await harness.device({ clientId: 'meter-1' })
  for (const value of ['1', '2']) await device.publishAsync('meter/1', value, { qos: 1 })
  await on('/b/default/usage', async (tab) => {
    const panel = tab.locator('section', { hasText: 'Spend cap' })
    await panel.getByText('There is no cap, so usage is charged without a limit.').waitFor()
    // Each message costs one.
    await panel.getByText(/^[1-9]\d*\.00 since the first of the month\./).waitFor()
  })
})
