// The form of the live view: all that MQTT 5.0 says of a message, and what of it is there at the next visit.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, test } from 'node:test'
import { Harness, settled } from './harness.mjs'
import { ownerOf, Server } from './server.mjs'

let server
let harness
let owner
let visit
/** The path of the broker "default" in the API. */
let at

/** The largest packet of a server without settings. */
const PACKET_BYTES_MAX = 1_048_576

before(async () => {
  server = await Server.make({ 'sign-up': 'anybody' })
  harness = await Harness.on(server)
  const made = await ownerOf(server)
  owner = made.owner
  at = `${made.organisation}/brokers/default`
  visit = await harness.visitor(owner)
})

after(async () => {
  await harness?.close()
  await server?.stop()
})

async function openLive() {
  const { tab } = visit
  await tab.goto(`${server.url}/b/default/live`)
  await settled(tab)
  await tab.getByText(/Connected as console-/).waitFor()
  return tab
}

const field = (tab, name) => tab.getByRole('textbox', { name, exact: true })

test('a message that is larger than the broker takes is not sent, and the largest that fits is acknowledged', async () => {
  const device = await harness.device({ clientId: 'large-1' })
  await device.subscribeAsync('plant/1/large', { qos: 1 })
  const tab = await openLive()
  await field(tab, 'Topic').fill('plant/1/large')
  for (const bytes of [5_000_000, PACKET_BYTES_MAX]) {
    await field(tab, 'Payload').fill('x'.repeat(bytes))
    await tab.getByRole('button', { name: 'Publish', exact: true }).click()
    await tab.getByText(/more than the 1,048,576 that this broker allows in a packet/).waitFor()
  }
  assert.equal(await tab.getByText(/Connected as console-/).count(), 1)
  // Two bytes of the length of the topic, three of the packet's, one each of its type and its properties, two of its id.
  const fits = PACKET_BYTES_MAX - 'plant/1/large'.length - 9
  const came = once(device, 'message')
  await field(tab, 'Payload').fill('x'.repeat(fits))
  await tab.getByRole('button', { name: 'Publish', exact: true }).click()
  const [, payload] = await came
  assert.equal(payload.length, fits)
  await tab.getByText(/^Acknowledged:/).waitFor()
  await tab.getByRole('button', { name: 'Clear', exact: true }).click()
  assert.deepEqual(visit.complaints, [])
})

test('a page whose connection the broker closes says why, and connects again', async () => {
  const tab = await openLive()
  const said = await tab.getByText(/Connected as console-/).textContent()
  const [client] = /console-\S+/.exec(said)
  await owner.ask('DELETE', `${at}/clients/${encodeURIComponent(client)}`)
  await tab
    .getByText('The broker closed the connection: somebody disconnected it. The page tries again by itself.')
    .waitFor()
  await tab.getByText(/Connected as console-/).waitFor()
})

test('each property reaches a device, and the message says how long it took', async () => {
  const device = await harness.device({ clientId: 'asked-1' })
  await device.subscribeAsync('plant/1/ask', { qos: 1 })
  const tab = await openLive()
  await field(tab, 'Topic').fill('plant/1/ask')
  await field(tab, 'Payload').fill('how warm?')
  await tab.getByRole('button', { name: 'Properties of MQTT 5.0' }).click()
  await field(tab, 'Content type').fill('text/plain')
  await field(tab, 'Response topic').fill('plant/1/answer')
  await field(tab, 'Correlation data').fill('0x00ff37')
  await field(tab, 'Message expiry, seconds').fill('60')
  await tab.getByRole('switch', { name: 'Mark the payload as UTF-8 text' }).check()
  for (const [at, value] of ['C', 'F'].entries()) {
    await tab.getByRole('button', { name: 'Add user property' }).click()
    const name = field(tab, `Name of user property ${at + 1}`)
    await name.waitFor()
    assert.ok(await name.evaluate((one) => one === document.activeElement), 'the new field has the focus')
    await name.fill('unit')
    await field(tab, `Value of user property ${at + 1}`).fill(value)
  }
  const came = once(device, 'message')
  await tab.getByRole('button', { name: 'Publish', exact: true }).click()
  const [, payload, { properties }] = await came
  assert.equal(payload.toString(), 'how warm?')
  assert.deepEqual(
    {
      ...properties,
      correlationData: [...properties.correlationData],
      userProperties: { ...properties.userProperties },
    },
    {
      contentType: 'text/plain',
      responseTopic: 'plant/1/answer',
      correlationData: [0, 255, 0x37],
      messageExpiryInterval: 60,
      payloadFormatIndicator: true,
      userProperties: { unit: ['C', 'F'] },
    },
  )
  await tab.getByText(/PUBACK after [\d.]+ m?s; this page received it after [\d.]+ m?s\./).waitFor()
  await tab
    .getByRole('row', { name: /plant\/1\/ask/ })
    .getByRole('button')
    .first()
    .click()
  const drawer = tab.getByRole('dialog')
  await drawer.getByText('0x00ff37').waitFor()
  await drawer.getByText('plant/1/answer').waitFor()
  assert.deepEqual(visit.complaints, [])
})

test('a mistake in a property is named, and nothing is sent', async () => {
  const tab = await openLive()
  await field(tab, 'Message expiry, seconds').fill('soon')
  await tab.getByRole('button', { name: 'Publish', exact: true }).click()
  await tab.getByText('Enter whole seconds').waitFor()
  assert.equal(await tab.getByText('Acknowledged:').count(), 0)
  await field(tab, 'Message expiry, seconds').fill('60')
  await tab.getByText('Enter whole seconds').waitFor({ state: 'detached' })
})

test('the form is as it was at the next visit, can be cleared, and a sign-out removes it', async () => {
  const tab = await openLive()
  assert.equal(await field(tab, 'Topic').inputValue(), 'plant/1/ask')
  assert.equal(await field(tab, 'Correlation data').inputValue(), '0x00ff37')
  assert.equal(await field(tab, 'Value of user property 2').inputValue(), 'F')
  await tab.getByRole('button', { name: 'Clear', exact: true }).click()
  assert.equal(await field(tab, 'Topic').inputValue(), '')
  await field(tab, 'Topic').fill('secret/plan')
  const drafts = () =>
    tab.evaluate(() => Object.keys(localStorage).filter((name) => name.startsWith('millrace.draft')))
  await tab.goto(`${server.url}/b/default`)
  await settled(tab)
  assert.equal((await drafts()).length, 1)
  await tab.getByRole('button', { name: /^Account of/ }).click()
  await tab.getByRole('menuitem', { name: 'Sign out' }).click()
  await tab.getByRole('heading', { name: 'Sign in' }).waitFor()
  assert.deepEqual(await drafts(), [])
})
