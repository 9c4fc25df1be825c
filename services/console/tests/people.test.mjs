// Stumbles of people who used the console for a purpose: somebody with an ESP32, and an engineer at night whose devices stopped.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { settled } from './harness.mjs'
import { stage } from './stage.mjs'

const DAY_MS = 86_400_000

const { server, harness, owner, broker, at } = await stage()

const on = (path, act, prepare) => harness.on(`${server.url}${path}`, act, { api: owner, prepare })

test('an ESP32: the snippet has the address of this machine on the network, once it is typed', () =>
  on('/b/default/connect?snippet=arduino', async (tab) => {
    const panel = tab.getByRole('tabpanel', { name: 'Arduino' })
    await tab.getByText('A board does not reach 127.0.0.1').waitFor()
    await panel.getByText('client.setServer("127.0.0.1"').waitFor()
    const address = tab.getByRole('textbox', { name: /address on your network/ })
    await address.fill('192.168.1.20 x')
    await tab.getByText('Enter a name or an address').waitFor()
    await address.fill('192.168.1.20')
    await panel.getByText('client.setServer("192.168.1.20"').waitFor()
    await tab.getByText('The snippet works once you put in the name and password of your Wi-Fi.').waitFor()
    await tab.getByText(`mqtt://192.168.1.20:${server.ports.mqtt}`).waitFor()
  }))

test('at night: the overview of a broker that is no longer new begins with its numbers and charts', async () => {
  const older = (tab) =>
    tab.route(
      ({ pathname }) => pathname.endsWith(`/brokers/${broker}`),
      async (route) => {
        const response = await route.fetch()
        const json = await response.json()
        await route.fulfill({ response, json: { ...json, created_at_ms: json.created_at_ms - 2 * DAY_MS } })
      },
    )
  await on(`/b/${broker}`, (tab) => tab.getByText('Connect a first device').waitFor())
  await on(
    `/b/${broker}`,
    async (tab) => {
      await tab.getByRole('heading', { name: 'Traffic' }).waitFor()
      assert.equal(await tab.getByText('Connect a first device').count(), 0)
    },
    older,
  )
})

test('at night: where no client is connected, the page leads to refusals and to sessions that are offline', () =>
  on(`/b/${broker}/clients`, async (tab) => {
    await tab.getByRole('link', { name: 'offline sessions' }).waitFor()
    await tab.getByRole('link', { name: 'refused clients' }).click()
    await tab.getByRole('heading', { level: 1, name: 'Incidents' }).waitFor()
    await tab.waitForURL(/kind=connect_refused/)
  }))

test('at night: a client of which nothing is recorded is not said to be refused as anonymous', () =>
  on(`/b/${broker}/clients/quiet-1`, async (tab) => {
    await tab.getByText('The server has recorded no connection or refusal of this client').waitFor()
    assert.equal(await tab.getByText('This still applies today').count(), 0)
  }))

test('at night: pages of the console add nothing to the refusals of a suspended broker', async () => {
  await owner.post(`${at}/suspend`)
  const count = async () =>
    (await owner.get(`${at}/incidents`)).items.reduce((sum, one) => sum + one.count, 0)
  // The servers keep to it within seconds, and file refusals within ten.
  await new Promise((resolve) => setTimeout(resolve, 12_000))
  const before = await count()
  await on(`/b/${broker}`, async (tab) => {
    await tab.getByText('This broker is suspended').waitFor()
    await tab
      .getByText('The broker is stopped: it accepts no clients, and this page cannot listen.')
      .waitFor()
    for (const page of ['live', 'topics']) {
      await tab.goto(`${server.url}/b/${broker}/${page}`)
      await settled(tab)
      await tab.getByText(/^The broker is stopped/).waitFor()
      await tab.waitForTimeout(3_000)
    }
  })
  await new Promise((resolve) => setTimeout(resolve, 12_000))
  assert.equal(await count(), before)
  await owner.post(`${at}/resume`)
})

test('a ban of a client page is taken back', async () => {
  await on(`/b/${broker}/clients/storm-1`, async (tab) => {
    await tab.getByRole('button', { name: 'Ban', exact: true }).click()
    await tab.getByRole('dialog').getByRole('button', { name: 'Ban', exact: true }).click()
    const note = tab.getByRole('alert').filter({ hasText: 'storm-1 is banned.' })
    await note.waitFor()
    assert.equal((await owner.get(`${at}/bans`)).items.length, 1)
    await note.getByRole('button', { name: 'Undo' }).click()
    await tab.getByText('storm-1 may connect again.').waitFor()
  })
  assert.equal((await owner.get(`${at}/bans`)).items.length, 0)
})
