// The address of a page says what is shown, so that a link shows a colleague the same.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { test } from 'node:test'
import { settled } from './harness.mjs'
import { until } from './server.mjs'
import { stage } from './stage.mjs'

const { server, harness, owner, organisation, broker, at } = await stage()

/** Opens a page, changes what it shows, and looks at its address in a browser of a colleague. */
async function shared(path, choose, look) {
  const first = await harness.visitor(owner)
  await first.tab.goto(`${server.url}${path}`)
  await settled(first.tab)
  await choose(first.tab)
  await look(first.tab)
  const second = await harness.visitor(owner)
  await second.tab.goto(first.tab.url())
  await settled(second.tab)
  await look(second.tab)
  for (const { context, complaints } of [first, second]) {
    assert.deepEqual(complaints, [])
    await context.close()
  }
}

test('the snippet of a language', () =>
  shared(
    '/b/default/connect',
    (tab) => tab.getByRole('tab', { name: 'Rust' }).click(),
    (tab) => tab.getByRole('tabpanel', { name: 'Rust' }).getByText('rumqttc').first().waitFor(),
  ))

test('the kind of packets in a trace', () =>
  shared(
    '/b/default/clients/pump-7?tab=trace',
    async (tab) => {
      await tab.getByRole('combobox', { name: 'Packets' }).click()
      await tab.getByRole('option').nth(1).click()
      await tab.waitForURL(/packets=/)
    },
    async (tab) => {
      const chosen = await tab.getByRole('combobox', { name: 'Packets' }).inputValue()
      assert.notEqual(chosen, 'All packets')
    },
  ))

test('a request to a webhook', async () => {
  const service = createServer((_, response) => response.writeHead(204).end()).listen(0, '127.0.0.1')
  await once(service, 'listening')
  await owner.put(`${at}/webhooks/orders`, {
    url: `http://127.0.0.1:${service.address().port}/hook`,
    events: ['connect'],
  })
  await owner.post(`${at}/webhooks/orders/test`)
  await until(
    'a request',
    async () => (await owner.get(`${at}/webhooks/orders/deliveries`)).items?.length > 0,
  )
  await shared(
    `/b/${broker}/webhooks?webhook=orders`,
    (tab) =>
      tab.getByRole('table', { name: 'Deliveries' }).getByRole('row').nth(1).getByRole('button').click(),
    (tab) => tab.getByRole('dialog', { name: 'Delivery' }).getByText('First event').waitFor(),
  )
  service.closeAllConnections()
  service.close()
})

test('the address of a broker that is not there leads to the brokers that are', async () => {
  const { tab, context } = await harness.visitor(owner)
  await tab.goto(`${server.url}/b/nowhere/clients`)
  await tab.getByRole('heading', { level: 1, name: 'Not found' }).waitFor()
  const other = tab.getByRole('link', { name: 'Plant 7', exact: true })
  await other.waitFor()
  await tab.getByRole('button', { name: 'Broker: Choose a broker' }).waitFor()
  assert.equal(await tab.locator('a[href*="/b/nowhere"]').count(), 0)
  await other.click()
  await tab.waitForURL(`${server.url}/b/${broker}`)
  await context.close()
})

test('the audit log says the name of an API token, and not its id alone', async () => {
  const { id } = await owner.post(`${organisation}/tokens`, { name: 'deployment', scopes: ['brokers:read'] })
  const { tab, context } = await harness.visitor(owner)
  await tab.goto(`${server.url}${organisation.replace('/organisations/', '/org/')}?tab=audit&action=token.`)
  const row = tab.getByRole('row', { name: /Token created/ })
  await row.getByText('deployment', { exact: true }).waitFor()
  await row.getByRole('button').click()
  await tab.getByRole('dialog', { name: 'Token created' }).getByText(id).waitFor()
  await context.close()
})
