// "Where is my message?" while the page is open: when a message was acknowledged, and why it left the store.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Harness, settled } from './harness.mjs'
import { ownerOf, Server, until } from './server.mjs'

let server
let harness
let owner
let at

before(async () => {
  server = await Server.make({ 'sign-up': 'anybody' })
  harness = await Harness.on(server)
  const { owner: made, organisation } = await ownerOf(server)
  owner = made
  at = `${organisation}/brokers/default`
})

after(async () => {
  await harness?.close()
  await server?.stop()
})

const session = (clientId) => ({ clientId, clean: false, properties: { sessionExpiryInterval: 3600 } })

/** Leaves a session that is offline and subscribes to a filter. */
async function leave(clientId, filter) {
  const device = await harness.device(session(clientId))
  await device.subscribeAsync(filter, { qos: 1 })
  await device.endAsync()
}

/** Opens the page of a topic whose first message waits for somebody, and that message. */
async function openMessage(topic) {
  const visit = await harness.visitor(owner)
  const { tab } = visit
  await tab.goto(`${server.url}/b/default/messages?${new URLSearchParams({ topic })}`)
  await settled(tab)
  const table = tab.getByRole('table', { name: 'Stored messages' })
  await table.getByText('waits for 1').waitFor()
  await table.getByRole('row').nth(1).getByRole('button').click()
  const drawer = tab.getByRole('dialog', { name: topic })
  await drawer.getByText('waits: offline').first().waitFor()
  return { ...visit, table, drawer }
}

test('an acknowledgement has its time, and that of a session that the page saw earlier a bound', async () => {
  for (const id of ['slow-1', 'quick-1']) await leave(id, 'hall/1/#')
  const quick = await harness.device(session('quick-1'))
  await owner.post(`${at}/publish`, { topic: 'hall/1/door', payload: 'open' })
  await until('the quick session to acknowledge', async () => {
    const { items } = await owner.get(`${at}/messages?topic=hall%2F1%2Fdoor`)
    return items[0]?.acknowledged === 1
  })
  const { context, complaints, drawer } = await openMessage('hall/1/door')
  const row = (id) => drawer.getByRole('row').filter({ hasText: id })
  await row('quick-1')
    .getByText(/^before \d\d:\d\d:\d\d$/)
    .waitFor()
  await harness.device(session('slow-1'))
  await row('slow-1')
    .getByText(/^\d\d:\d\d:\d\d–\d\d:\d\d:\d\d$/)
    .waitFor()
  // The role makes screen readers announce it.
  await drawer.getByRole('status').filter({ hasText: '2 receivers acknowledged it' }).waitFor()
  assert.deepEqual(complaints, [])
  await quick.endAsync()
  await context.close()
})

test('a message that its only session has acknowledged stays in the list, with the reason', async () => {
  await leave('only-1', 'hall/2/#')
  await owner.post(`${at}/publish`, { topic: 'hall/2/door', payload: 'open' })
  const { context, table, drawer } = await openMessage('hall/2/door')
  const device = await harness.device(session('only-1'))
  await drawer.getByRole('status').filter({ hasText: 'Acknowledged by each session' }).waitFor()
  await table.getByText('removed: acknowledged by all').waitFor()
  await device.endAsync()
  await context.close()
})

test('a message that a limit removed says so, and which limits there are', async () => {
  const { limits } = await owner.get(at)
  const change = (client) =>
    owner.ask(
      'PATCH',
      at,
      { limits: { ...limits, client: { ...limits.client, ...client } } },
      { 'if-match': '*' },
    )
  await change({ queue_messages: 3 })
  await leave('full-1', 'hall/3/#')
  await owner.post(`${at}/publish`, { topic: 'hall/3/door', payload: 'open' })
  const { tab, context, table, drawer } = await openMessage('hall/3/door')
  // The server removes messages above the limit some time after they came.
  await until('a removed message', async () => {
    for (let sent = 0; sent < 20; sent += 1) {
      await owner.post(`${at}/publish`, { topic: 'hall/3/window', payload: String(sent) })
    }
    const { filters } = await owner.get(`${at}/messages?topic=hall%2F3%2Fdoor`)
    return filters[0]?.trimmed > 0
  })
  await drawer.getByText('Removed before each session had it').waitFor()
  await drawer
    .getByText(/^The limit on the messages or bytes that wait for a session removed messages/)
    .waitFor()
  await tab.keyboard.press('Escape')
  await table.getByText('removed: by a limit or an operator').waitFor()
  await tab
    .getByText(/The limit on the messages or bytes that wait for a session removed \d+ messages (at|between)/)
    .waitFor()
  await tab.getByText('Limits of this broker: 3 messages that wait for a session').waitFor()
  await tab.getByRole('link', { name: 'which clients missed messages' }).waitFor()
  await change({ queue_messages: null })
  await context.close()
})
