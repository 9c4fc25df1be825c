// The pages of operators on the admin port: their main actions against a real server, with real MQTT clients.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { Harness, serious, settled } from './harness.mjs'
import { Api, PASSWORD, Server, until } from './server.mjs'
import { Authenticator } from './totp.mjs'

const TOKEN = 'a token that only the operators of this region know'

let server
let harness
let owner
let broker
let password

before(async () => {
  server = await Server.make({ 'usage-interval-s': 1 })
  harness = await Harness.on(server)
  owner = new Api(server.url)
  await owner.signUp('Ann', server.link('/sign-up'))
  const [{ id }] = (await owner.get('/me')).organisations
  await owner.ask('PATCH', `/organisations/${id}`, { name: 'Mill works' }, { 'if-match': '*' })
  broker = await owner.post(`/organisations/${id}/brokers`, { display_name: 'Plant 7' })
  const rules = [{ effect: 'allow', action: 'all', filter: '#' }]
  const at = `/organisations/${id}/brokers/${broker.name}`
  password = (await owner.post(`${at}/credentials`, { user: 'pump-1', rules })).secret
})

after(async () => {
  await harness?.close()
  await server?.stop()
})

const pump = () => ({ clientId: 'pump-1', username: `${broker.name}/pump-1`, password })
const click = (place, name) => place.getByRole('button', { name, exact: true }).click()

/** Holds the answers of a path back until the function that this returns is called. */
async function held(tab, path) {
  let release
  const released = new Promise((resolve) => {
    release = resolve
  })
  await tab.route(
    (url) => url.pathname === path,
    async (route) => {
      const response = await route.fetch()
      await released
      await route.fulfill({ response })
    },
  )
  return release
}

/** A page of a server's operators. */
const on = (path, act, at = server) => harness.on(`${at.admin}${path}`, act)

test('the overview shows the health of the pod, its numbers, and the loudest tenant', async () => {
  const device = await harness.device(pump())
  await device.publishAsync('up/pump-1', 'on', { qos: 1 })
  await on('/', async (tab) => {
    await tab.getByText('accepts clients').waitFor()
    await tab.getByText('Not needed: this server has no other pods.').waitFor()
    await tab.getByText('0 failures, 0 transactions refused, 0 stalls since the start').waitFor()
    // The server writes the usage of a tenant once a second.
    await until('the tenant among the loudest', async () => {
      await tab.reload()
      await settled(tab)
      const rows = await tab
        .getByRole('table', { name: 'Busiest tenants' })
        .getByRole('row')
        .allTextContents()
      return rows.some((row) => /Mill works[1-9]/.test(row))
    })
    await tab.getByRole('link', { name: 'Mill works' }).click()
    await tab.getByRole('dialog', { name: 'Tenant Mill works' }).waitFor()
    assert.deepEqual(await serious(tab), [])
  })
  device.end(true)
})

test('the overview has the time to deliver, once messages reach a connected client', async () => {
  const device = await harness.device(pump())
  await device.subscribeAsync('up/#', { qos: 0 })
  await on('/', async (tab) => {
    await tab.getByText('no message was delivered since this page was opened').waitFor()
    // The server measures one read in seventeen.
    const timer = setInterval(() => device.publish('up/pump-1', 'on'), 5)
    try {
      await tab.getByText(/^99 % of messages within [\d.]+ ms, in the last minute$/).waitFor()
    } finally {
      clearInterval(timer)
    }
  })
  await device.endAsync()
})

test('the audit log of the region has what operators did, and a tenant has a log of its own', async () => {
  const made = await fetch(`${server.admin}/v1/operator/plans/small`, {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ceiling: { broker: { connections: 1000 } } }),
  })
  assert.ok(made.ok, await made.text())
  await on('/', async (tab) => {
    await tab.getByRole('link', { name: 'Audit log' }).click()
    const row = tab.getByRole('row', { name: /Plan set/ })
    await row.getByText('small', { exact: true }).waitFor()
    assert.deepEqual(await serious(tab), [])
    await row.getByRole('button').click()
    await tab.getByRole('dialog', { name: 'Plan set' }).getByText('plan.set').waitFor()
    await tab.waitForURL(/entry=/)
    await tab.keyboard.press('Escape')
    await tab.getByLabel('Action').fill('pod.')
    await tab.getByText('No entry matches').waitFor()
    await click(tab, 'Show all entries')
    await row.waitFor()

    await tab.getByRole('link', { name: 'Tenants' }).click()
    await click(tab, 'Mill works')
    await tab.getByRole('link', { name: 'Audit log of this tenant' }).click()
    await tab.getByRole('heading', { name: 'Tenant Mill works' }).waitFor()
    // The log has the id of the organisation, and the page says its name.
    await tab.getByRole('row', { name: /Organisation changed.*Mill works/ }).waitFor()
    await tab.getByRole('link', { name: 'Show the log of the region' }).click()
    await row.waitFor()
  })
})

test('the keyboard: the palette finds a tenant, g and a letter go to a page, / to the search', async () => {
  await on('/', async (tab) => {
    await tab.keyboard.press('Control+k')
    const search = tab.getByRole('combobox', { name: 'Search' })
    await search.fill('mill works')
    await tab.getByRole('option', { name: /Mill works/ }).waitFor()
    await tab.keyboard.press('Enter')
    await tab.getByRole('dialog', { name: 'Tenant Mill works' }).waitFor()
    await tab.keyboard.press('Escape')
    await tab.keyboard.press('g')
    await tab.keyboard.press('a')
    await tab.getByRole('heading', { level: 1, name: 'Accounts' }).waitFor()
    await tab.getByRole('button', { name: 'Search' }).click()
    await search.fill('suspended')
    await tab.keyboard.press('Enter')
    await tab.waitForURL(/state=suspended/)
    await tab.keyboard.press('/')
    assert.ok(await tab.getByLabel('Search tenants').evaluate((one) => one === document.activeElement))
  })
})

test('a tenant is suspended with a reason that its people read, and resumed', async () => {
  const device = await harness.device(pump())
  const closed = once(device, 'close')
  await on('/tenants?search=mill', async (tab) => {
    await tab.getByRole('button', { name: 'Mill works' }).click()
    const drawer = tab.getByRole('dialog', { name: 'Tenant' })
    assert.ok(await drawer.getByRole('button', { name: 'Suspend tenant' }).isDisabled(), 'it wants a reason')
    await drawer.getByLabel('Reason').fill('invoice 4711 is not paid')
    await click(drawer, 'Suspend tenant')
    const question = tab.getByRole('dialog', { name: 'Suspend Mill works?' })
    await question.getByText('2 brokers stop and all their clients are disconnected').waitFor()
    assert.ok(
      await question.getByRole('button', { name: 'Suspend tenant' }).isDisabled(),
      'it wants the name',
    )
    await question.getByLabel('Type Mill works to confirm').fill('Mill works')
    await click(question, 'Suspend tenant')
    await drawer.getByText('invoice 4711 is not paid').waitFor()
    await closed
    const refused = await owner.post('/organisations', { name: 'Elsewhere' }).catch(String)
    assert.match(refused, /invoice 4711 is not paid/)
    await assert.rejects(harness.device(pump()))

    await click(drawer, 'Resume tenant')
    await click(tab.getByRole('dialog', { name: 'Resume Mill works?' }), 'Resume tenant')
    await drawer.getByRole('button', { name: 'Suspend tenant' }).waitFor()
  })
  await until('the device to be let in again', () => harness.device(pump()).catch(() => null))
})

test('an operator removes a lost second factor after a question, and makes a link for a new password', async () => {
  const { secret } = await owner.post('/me/second-factor', { password: PASSWORD })
  await owner.post('/me/second-factor/confirm', { code: await new Authenticator(secret).next() })
  const signIn = () => new Api(server.url).post('/sign-in', { email: owner.email, password: PASSWORD })
  await assert.rejects(signIn(), /second-factor-required/)
  await on('/accounts', async (tab) => {
    const panel = (title) => tab.locator('section').filter({ has: tab.getByRole('heading', { name: title }) })
    const lost = panel('Lost second factor')
    assert.ok(await lost.getByRole('button', { name: 'Remove second factor' }).isDisabled())
    const remove = async (email) => {
      await lost.getByLabel('E-mail address of the account').fill(email)
      await click(lost, 'Remove second factor')
      const question = tab.getByRole('dialog', { name: `Remove the second factor of ${email}?` })
      await question.getByText(/all its browsers are signed out/).waitFor()
      await question.getByLabel(`Type ${email} to confirm`).fill(email)
      await click(question, 'Remove second factor')
      return question
    }
    const question = await remove('nobody@example.org')
    await question.getByRole('alert').waitFor()
    assert.deepEqual(await serious(tab), [])
    await click(question, 'Cancel')
    await remove(owner.email)
    await tab.getByText(`The second factor of ${owner.email} is removed.`).waitFor()
    await signIn()
    await assert.rejects(owner.get('/me'), /401/)

    const forgotten = panel('Forgotten password')
    const address = forgotten.getByLabel('E-mail address of the account')
    const release = await held(tab, '/v1/operator/reset-links')
    await address.fill(owner.email)
    await click(forgotten, 'Create reset link')
    await address.fill('next@example.org')
    release()
    // The link belongs to the address that it was asked for.
    await forgotten.getByText(`Pass this link on to ${owner.email}.`).waitFor()
    assert.equal(await address.inputValue(), 'next@example.org')
    const link = await forgotten.getByTestId('secret').textContent()
    assert.match(link, /\/reset-password#token=./)
    assert.deepEqual(await serious(tab), [])
  })
  await owner.post('/sign-in', { email: owner.email, password: PASSWORD })
})

test('a pod is drained after a question that says what happens, and the page shows how far it is', async () => {
  // Slow enough to be seen: a client a second.
  const drained = await Server.make({ 'drain-rate': 1, 'drain-max-s': 600 })
  const other = await Harness.on(drained)
  try {
    const left = []
    for (const clientId of ['pump-1', 'pump-2', 'pump-3']) {
      left.push(once(await other.device({ clientId }), 'close'))
    }
    await on(
      '/',
      async (tab) => {
        await click(tab, 'Drain pod')
        const question = tab.getByRole('dialog', { name: 'Drain this server?' })
        await question.getByText(/^3 connections are closed/).waitFor()
        await question.getByText(/No other pod is running/).waitFor()
        assert.deepEqual(await serious(tab), [])
        await question.getByLabel('Type drain to confirm').fill('drain')
        await click(question, 'Drain pod')
        const pods = tab.getByRole('table', { name: 'Pods' })
        await pods.getByText(/draining: [123] of 3 connections left/).waitFor()
        await pods.getByRole('progressbar', { name: /^Drain: [012] of 3 connections closed$/ }).waitFor()
        assert.ok(await pods.getByRole('button', { name: 'Drain pod' }).isDisabled())
        assert.deepEqual(await serious(tab), [])
        await Promise.all(left)
        await pods.getByText('drained: no connections left').waitFor()
        await tab.getByText('disconnected and refused, because an operator drains this pod').waitFor()
      },
      drained,
    )
    await assert.rejects(other.device({ clientId: 'pump-4' }))
  } finally {
    await other.close()
    await drained.stop()
  }
})

test('one of two pods is drained: the question names the other pod, which takes the clients', async () => {
  const region = await Server.make({ pods: 2 })
  const other = await Harness.on(region)
  try {
    const gone = once(await other.device({ clientId: 'pump-1' }), 'close')
    await on(
      '/',
      async (tab) => {
        const pods = tab.getByRole('table', { name: 'Pods' })
        await pods.getByRole('row', { name: /^pod-2 running/ }).waitFor()
        assert.equal(await pods.getByRole('button', { name: 'Drain pod' }).count(), 1)
        await tab.getByText('To drain another pod, open this page at the admin port of that pod.').waitFor()
        await tab.getByText('None. Without NATS, pods exchange only stored messages.').waitFor()
        await click(tab, 'Drain pod')
        const question = tab.getByRole('dialog', { name: 'Drain pod-1?' })
        await question.getByText(/^1 connection is closed/).waitFor()
        await question.getByText(/^The clients connect to 1 other pod\./).waitFor()
        await question.getByLabel('Type pod-1 to confirm').fill('pod-1')
        await click(question, 'Drain pod')
        await pods.getByText('drained: no connections left').waitFor()
        assert.deepEqual(await serious(tab), [])
      },
      region,
    )
    await gone
    await assert.rejects(other.device({ clientId: 'pump-1' }))
    // The next pod has the ports of the one before it plus one.
    await other.device({ clientId: 'pump-1', port: region.ports.mqtt + 1 })
  } finally {
    await other.close()
    await region.stop()
  }
})

test('with an operator token the pages ask for it, and one tab keeps it', async () => {
  const file = join(server.folder, 'operator-token')
  writeFileSync(file, TOKEN)
  const guarded = await Server.make({ 'operator-token-file': file })
  try {
    await on(
      '/tenants',
      async (tab) => {
        assert.deepEqual(await serious(tab), [])
        await tab.getByRole('textbox', { name: 'Operator token' }).fill('a wrong one')
        await click(tab, 'Open')
        await tab.getByText('The server does not accept this token.').waitFor()
        await tab.getByRole('textbox', { name: 'Operator token' }).fill(TOKEN)
        await click(tab, 'Open')
        await tab.getByRole('heading', { level: 1, name: 'Tenants' }).waitFor()
        await tab.reload()
        await tab.getByRole('heading', { level: 1, name: 'Tenants' }).waitFor()

        const stranger = await tab.context().newPage()
        await stranger.goto(`${guarded.admin}/`)
        await stranger.getByRole('textbox', { name: 'Operator token' }).waitFor()

        await click(tab, 'Forget the token')
        await tab.getByRole('textbox', { name: 'Operator token' }).waitFor()
      },
      guarded,
    )
  } finally {
    await guarded.stop()
  }
})

test('while the server is away the page keeps its data, and it catches up', async () => {
  const restarted = await Server.make()
  try {
    await on(
      '/',
      async (tab) => {
        await tab.getByText('accepts clients').waitFor()
        await restarted.kill()
        await tab.getByText('The server stopped answering').waitFor()
        await tab.getByText('accepts clients').waitFor()
        await restarted.start()
        await tab.getByText('The server stopped answering').waitFor({ state: 'detached' })
        await tab.getByText('accepts clients').waitFor()
      },
      restarted,
    )
  } finally {
    await restarted.stop()
  }
})
