// Draws the pictures of the README, light and dark, from a server with traffic.
//
//   MILLRACE=target/release/millrace node tests/pictures.mjs [FOLDER [picture...]]      services/console/screenshots without a folder
//
// Look at each of them before it is committed.

import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import mqtt from 'mqtt'
import { launch, withSession } from './browser.mjs'
import { demo } from './demo.mjs'
import { settled } from './harness.mjs'
import { until } from './server.mjs'

const [wanted = join(dirname(fileURLToPath(import.meta.url)), '../screenshots'), ...only] =
  process.argv.slice(2)
const folder = resolve(wanted)
/** The live charts of the overview show at least a minute. */
const WARM_MS = Number(process.env.WARM_MS ?? 90_000)
const WAIT_MS_MAX = 120_000
const WIDTH = 1440

const world = await demo()
const { server, api, organisation, tenant, at } = world
await api.ask('PATCH', organisation, { name: 'Millbrook works' }, { 'if-match': '*' })
const raised = { monthly_micros: 40_000_000, action: 'stop' }
await api.put(`${organisation}/brokers/${tenant}/spend-cap`, raised, { 'if-match': '*' })
const [change] = (await api.get(`${organisation}/audit`)).items
const organisationPage = organisation.replace('/organisations/', '/org/')
const browser = await launch()

const session = (clientId) =>
  mqtt.connectAsync(`mqtt://127.0.0.1:${server.ports.mqtt}`, {
    clientId,
    protocolVersion: 5,
    clean: false,
    reconnectPeriod: 0,
    properties: { sessionExpiryInterval: 86_400 },
  })

/** A message for three sessions: one has it before the page opens, one receives it while the page is open, one stays away. */
async function order(name) {
  const ids = ['erp', 'press', 'archive'].map((id) => `${id}-${name}`)
  const topic = `orders/${name}/created`
  const stored = `${at}/messages?${new URLSearchParams({ topic })}`
  for (const id of ids) {
    const client = await session(id)
    await client.subscribeAsync(`orders/${name}/#`, { qos: 1 })
    if (!id.startsWith('erp')) await client.endAsync()
  }
  await api.post(`${at}/publish`, { topic, payload: '{"order":42,"pieces":300}' })
  await until(
    'the first one to acknowledge',
    async () => (await api.get(stored)).items[0]?.acknowledged === 1,
  )
  return { topic, late: ids[1] }
}

async function openOrder(tab, name) {
  const { topic, late } = await order(name)
  await tab.goto(new URL(`/b/default/messages?${new URLSearchParams({ topic })}`, server.url).href)
  await settled(tab)
  const rows = tab.getByRole('table', { name: 'Stored messages' }).getByRole('row')
  await rows.nth(1).getByRole('button').click()
  const receivers = tab.getByRole('dialog').getByRole('table', { name: 'Receivers' })
  await receivers.getByText('waits: offline').first().waitFor()
  await session(late)
  await receivers.getByRole('row').filter({ hasText: late }).getByText('acknowledged').waitFor()
}

const opens = (path, act) => async (tab) => {
  await tab.goto(new URL(path, server.url).href)
  await settled(tab)
  await act?.(tab)
}

/** Each picture: its height, and what is done before it is drawn. */
const PICTURES = {
  overview: [1190, opens('/b/default', (tab) => tab.waitForTimeout(WARM_MS))],
  'why-not': [1290, opens(`/b/${tenant}/clients/pump-7?packet=publish`)],
  messages: [820, (tab, scheme) => openOrder(tab, scheme)],
  live: [
    900,
    opens('/b/default/live?filters=plant%2F%23', async (tab) => {
      await tab.getByRole('textbox', { name: 'Topic', exact: true }).fill('plant/press-1/speed')
      await tab.getByRole('textbox', { name: 'Payload', exact: true }).fill('{"rpm":1200}')
      await tab.getByText('JSON', { exact: true }).click()
      await tab.getByRole('button', { name: 'Publish', exact: true }).click()
      await tab.getByText(/this page received it after/).waitFor()
    }),
  ],
  topics: [900, opens('/b/default/topics?topic=plant%2Fhall-1%2Fstate')],
  connect: [1230, opens('/b/default/connect')],
  organisation: [820, opens(`${organisationPage}?tab=audit&entry=${change.id}`)],
  operator: [1000, opens(`${server.admin}/`, (tab) => tab.waitForTimeout(WARM_MS / 3))],
}

try {
  for (const scheme of ['light', 'dark']) {
    for (const [name, [height, show]] of Object.entries(PICTURES)) {
      if (only.length > 0 && !only.includes(name)) continue
      const context = await browser.newContext({ viewport: { width: WIDTH, height }, colorScheme: scheme })
      context.setDefaultTimeout(WAIT_MS_MAX)
      await withSession(context, server.url, api)
      const tab = await context.newPage()
      await show(tab, scheme)
      // Charts, numbers and what fades in.
      await tab.waitForTimeout(3_000)
      const file = scheme === 'light' ? `${name}.png` : `${name}-dark.png`
      await tab.screenshot({ path: join(folder, file) })
      await context.close()
    }
  }
} finally {
  await browser.close()
  await world.stop()
}
// Sessions of the pictures have connections of their own.
process.exit()
