// Main actions of pages that actions.test.mjs does not do: client CAs, organisations, invitations, members, web sessions, dead letters,
// the live view.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { test } from 'node:test'
import { Api, PASSWORD, until } from './server.mjs'
import { stage } from './stage.mjs'

const { server, harness, owner, organisation, broker, at } = await stage()

const on = (path, act, api = owner) => harness.on(`${server.url}${path}`, act, { api })
const click = (place, name) => place.getByRole('button', { name, exact: true }).click()
const pageOf = (organisation) => organisation.replace('/organisations/', '/org/')
const invitation = (email, role = 'viewer') => owner.post(`${organisation}/invitations`, { email, role })
const memberNames = async () => (await owner.get(`${organisation}/members`)).items.map(({ name }) => name)

test('client CAs: one is saved, and says whose certificates it accepts', async () => {
  const request = 'req -x509 -newkey rsa:2048 -nodes -subj /CN=Plant -keyout /dev/null'.split(' ')
  const { stdout: pem, status } = spawnSync('openssl', request, { encoding: 'utf8' })
  assert.equal(status, 0, 'openssl makes a certificate')
  await owner.put(`${at}/groups/line-2`, { rules: [{ effect: 'allow', action: 'all', filter: 'line-2/#' }] })
  await on(`/b/${broker}/access?tab=certificates`, async (tab) => {
    const drawer = tab.getByRole('dialog')
    await click(tab, 'Add client CA')
    await drawer.getByLabel('Name', { exact: true }).fill('plant')
    await drawer.getByLabel('Certificate', { exact: true }).fill('no certificate')
    await click(drawer, 'Save client CA')
    await drawer.locator('[aria-invalid=true]').waitFor()
    await drawer.getByLabel('Certificate', { exact: true }).fill(pem)
    await drawer.getByRole('combobox', { name: 'Group' }).click()
    await tab.getByRole('option', { name: 'line-2' }).click()
    await click(drawer, 'Save client CA')
    await tab.getByRole('row', { name: /plant/ }).waitFor()
    const { user, group } = await owner.get(`${at}/client-cas/plant`)
    assert.deepEqual([user, group], ['common_name', 'line-2'])
  })
})

test('somebody without an organisation creates one, and then a second one', async () => {
  const { token } = await invitation('eve@example.org')
  const eve = new Api(server.url)
  await eve.signUp('Eve', token)
  const [first] = (await eve.get('/me')).organisations
  await eve.ask('DELETE', `/organisations/${first.id}/members/${(await eve.get('/me')).user.id}`)
  await on(
    '/org',
    async (tab) => {
      await tab.getByText('You belong to no organisation.').waitFor()
      for (const name of ['Mill', 'Dairy']) {
        await tab.getByLabel('Name', { exact: true }).fill(name)
        await click(tab, 'Create organisation')
        await tab.getByRole('heading', { level: 1, name }).waitFor()
        if (name === 'Mill') await tab.getByRole('link', { name: 'Create organisation' }).click()
      }
      await tab.getByRole('combobox', { name: 'Organisation' }).click()
      await tab.getByRole('option', { name: 'Mill' }).click()
      await tab.getByRole('heading', { level: 1, name: 'Mill' }).waitFor()
    },
    eve,
  )
  assert.deepEqual((await eve.get('/me')).organisations.map(({ name }) => name).sort(), ['Dairy', 'Mill'])
})

test('an invitation: withdrawn, accepted by somebody with an account, and used to sign up', async () => {
  await invitation('gone@example.org')
  await on(`${pageOf(organisation)}?tab=invitations`, async (tab) => {
    const row = tab.getByRole('row', { name: /gone@example.org/ })
    await click(row, 'Withdraw')
    await click(tab.getByRole('dialog', { name: /Withdraw the invitation/ }), 'Withdraw')
    await row.waitFor({ state: 'detached' })
  })

  const fay = new Api(server.url)
  await fay.signUp('Fay')
  const { token } = await invitation('fay@example.org')
  await on(
    `/sign-up#${token}`,
    async (tab) => {
      await tab.getByText('You are signed in as Fay.').waitFor()
      await click(tab, 'Accept the invitation')
      await tab.getByText('Plant 7').first().waitFor()
    },
    fay,
  )

  const { token: other } = await invitation('gus@example.org')
  await harness.on(`${server.url}/sign-up#${other}`, async (tab) => {
    await tab.getByLabel('Your name').fill('Gus')
    await tab.getByLabel('E-mail address').fill('gus@example.org')
    await tab.getByRole('textbox', { name: 'Password' }).fill(PASSWORD)
    await click(tab, 'Create account')
    await tab.getByText('Plant 7').first().waitFor()
  })
  const names = await memberNames()
  assert.ok(names.includes('Fay') && names.includes('Gus'), names.join())
})

test('a member is removed, and another one leaves', async () => {
  const person = async (name) => {
    const { token } = await invitation(`${name.toLowerCase()}@example.org`)
    const api = new Api(server.url)
    await api.signUp(name, token)
    return api
  }
  await person('Hal')
  const ida = await person('Ida')
  await on(pageOf(organisation), async (tab) => {
    const row = tab.getByRole('row', { name: /Hal/ })
    await click(row, 'Remove')
    await click(tab.getByRole('dialog', { name: 'Remove Hal?' }), 'Remove')
    await row.waitFor({ state: 'detached' })
  })
  await on(
    pageOf(organisation),
    async (tab) => {
      await click(tab, 'Leave')
      await click(tab.getByRole('dialog', { name: /^Leave / }), 'Leave')
      await tab.getByRole('heading', { level: 1, name: 'Brokers' }).waitFor()
      await tab.getByText('No broker yet').waitFor()
    },
    ida,
  )
  const names = await memberNames()
  assert.ok(!names.includes('Hal') && !names.includes('Ida'), names.join())
})

test('signing out everywhere else ends the other web sessions', async () => {
  const jan = new Api(server.url)
  await jan.signUp('Jan')
  const elsewhere = new Api(server.url)
  await elsewhere.post('/sign-in', { email: jan.email, password: PASSWORD })
  await on(
    '/me',
    async (tab) => {
      await click(tab, 'Sign out everywhere else')
      await tab.getByText('All other browsers are signed out.').waitFor()
      await tab.getByRole('button', { name: 'Sign out everywhere else' }).waitFor({ state: 'detached' })
    },
    jan,
  )
  await assert.rejects(elsewhere.get('/me/sessions'), /401/)
})

test('webhooks: settings are changed, dead letters are all sent again, and all removed', async () => {
  let status = 422
  let calls = 0
  const service = createServer((request, response) => {
    calls += 1
    request.resume()
    response.writeHead(status).end()
  })
  service.listen(0, '127.0.0.1')
  await once(service, 'listening')
  const hook = {
    url: `http://127.0.0.1:${service.address().port}/hook`,
    events: ['message'],
    filters: ['up/#'],
  }
  const letters = async () => (await owner.get(`${at}/webhooks/strict/dead-letters`)).items
  const refused = (count) =>
    until(`${count} dead letters`, async () => {
      if ((await letters()).length >= count) return true
      await owner.post(`${at}/publish`, { topic: 'up/1', payload: 'x', qos: 1 })
      return false
    })
  await owner.put(`${at}/webhooks/strict`, hook)
  try {
    await refused(2)
    await on(`/b/${broker}/webhooks?webhook=strict`, async (tab) => {
      const drawer = tab.getByRole('dialog')
      await click(tab, 'Edit')
      await drawer.getByLabel('Connect', { exact: true }).check()
      await click(drawer, 'Save webhook')
      await tab.getByText('message, connect').waitFor()

      status = 204
      const before = calls
      await click(tab, 'Send all again')
      await tab.getByText('No dead letter').waitFor()
      assert.ok(calls > before)

      status = 422
      await refused(1)
      await tab.reload()
      await click(tab, 'Remove all')
      const question = tab.getByRole('dialog', { name: 'Remove all dead letters?' })
      await question.getByText(/will never be delivered/).waitFor()
      await click(question, 'Remove')
      await tab.getByText('No dead letter').waitFor()
      assert.deepEqual(await letters(), [])
    })
  } finally {
    await owner.ask('DELETE', `${at}/webhooks/strict`, undefined, { 'if-match': '*' })
    service.closeAllConnections()
    service.close()
  }
})

test('live: two filters, the largest QoS, RETAIN, a pause, bytes of a payload, a search, and an empty list', async () => {
  const publish = (topic, payload, more) => owner.post(`${at}/publish`, { topic, payload, qos: 1, ...more })
  await publish('hall/kept', 'kept', { retain: true })
  await on(`/b/${broker}/live?filters=none`, async (tab) => {
    await tab.getByText(/Connected as console-/).waitFor()
    const filters = tab.getByRole('combobox', { name: 'Topic filters' })
    for (const filter of ['hall/#', 'yard/+']) {
      await filters.fill(filter)
      await filters.press('Enter')
    }
    await tab.waitForURL(/hall.*yard/)
    const row = (text) => tab.getByRole('row').filter({ hasText: text })
    const kept = row('hall/kept')
    await kept.getByText('retained').waitFor()

    await tab.getByText('QoS 1', { exact: true }).first().click()
    await tab.waitForURL(/qos=.*1/)
    await until('a message with QoS 1', async () => {
      await publish('yard/gate', 'open')
      return (await row('yard/gate').first().getByRole('cell', { name: '1', exact: true }).count()) > 0
    })

    await click(tab, 'Pause')
    await publish('hall/late', 'late')
    await tab.getByText(/^Paused, [1-9]/).waitFor()
    assert.equal(await row('hall/late').count(), 0)
    await click(tab, 'Resume')
    await publish('hall/later', 'later')
    await row('hall/later').waitFor()

    await row('hall/later').getByRole('button').first().click()
    const drawer = tab.getByRole('dialog')
    await drawer.getByText('later', { exact: true }).waitFor()
    await drawer.getByText('Hex', { exact: true }).click()
    await drawer.getByText('6c 61 74 65 72').waitFor()
    await tab.keyboard.press('Escape')
    await drawer.waitFor({ state: 'detached' })
    await tab.getByLabel('Find in messages').fill('kept')
    await tab.waitForURL(/find=kept/)
    await row('hall/later').waitFor({ state: 'detached' })
    await kept.first().waitFor()
    await tab.getByLabel('Find in messages').fill('')
    await row('hall/later').waitFor()

    await click(tab, 'Clear the list')
    await tab.getByText('No message yet.').waitFor()
  })
})
