// The main action of each page, done with the mouse and the keyboard, and what each role is offered.

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { test } from 'node:test'
import { settled } from './harness.mjs'
import { Api, PASSWORD, until } from './server.mjs'
import { stage } from './stage.mjs'

const { server, harness, owner, organisation, broker, at } = await stage()

const on = (path, act, api = owner) => harness.on(`${server.url}${path}`, act, { api })

const click = (place, name) => place.getByRole('button', { name, exact: true }).click()

test('credentials: created, rotated, and deleted with its client', async () => {
  await on(`/b/${broker}/access`, async (tab) => {
    await click(tab, 'Create credential')
    const drawer = tab.getByRole('dialog')
    await drawer.getByLabel('User').fill('pump-1')
    await click(drawer, 'Create credential')
    const first = await drawer.getByTestId('secret').textContent()
    await click(drawer, 'I have stored it')
    await harness.device({ clientId: 'pump-1', username: `${broker}/pump-1`, password: first })

    await click(tab, 'pump-1')
    const rotate = tab.getByRole('dialog').getByRole('button', { name: 'Rotate password' })
    await rotate.click()
    await click(tab, 'I have stored it')
    // The first password is valid for an hour now, so a person has to say which one the next rotation ends.
    await click(tab, 'pump-1')
    await tab.getByText('The previous password is valid until').waitFor()
    assert.equal(await rotate.isDisabled(), true)
    await tab.getByRole('radio', { name: 'After a leak: end both now' }).check()
    await click(tab.getByRole('dialog'), 'Rotate password')
    await tab.getByTestId('secret').waitFor()
    const leaked = { clientId: 'pump-2', username: `${broker}/pump-1`, password: first }
    const isRefused = () =>
      harness.device(leaked).then(
        (client) => client.endAsync().then(() => false),
        () => true,
      )
    await until('the leaked password to be refused', isRefused)
    assert.notEqual(await tab.getByTestId('secret').textContent(), first)
    await click(tab, 'I have stored it')

    await click(tab, 'pump-1')
    await click(tab.getByRole('dialog'), 'Delete credential')
    const question = tab.getByRole('dialog', { name: 'Delete pump-1?' })
    await question.getByText('1 connected client is disconnected').waitFor()
    await click(question, 'Delete credential')
    await tab.getByText('No credential yet').waitFor()
  })
})

test('many devices: a batch of credentials as files, and a claim token that a device exchanges', async () => {
  const { name } = await owner.post(`${organisation}/brokers`, { display_name: 'Fleet' })
  const place = `${organisation}/brokers/${name}`
  await on(`/b/${name}/access`, async (tab) => {
    await click(tab, 'Create batch')
    const drawer = tab.getByRole('dialog')
    await drawer.getByLabel('Prefix').fill('pump-')
    await drawer.getByLabel('Devices', { exact: true }).fill('3')
    await click(drawer, 'Create batch')
    const [csv] = await Promise.all([tab.waitForEvent('download'), click(drawer, 'Download CSV')])
    const rows = (await readFile(await csv.path(), 'utf8')).trim().split('\r\n')
    assert.equal(rows[0], 'username,client_id,password')
    assert.equal(rows.length, 4)
    const [username, clientId, password] = rows[3].split(',')
    assert.equal(clientId, 'pump-3')
    await harness.device({ clientId, username, password })
    const [json] = await Promise.all([tab.waitForEvent('download'), click(drawer, 'Download JSON')])
    assert.equal(JSON.parse(await readFile(await json.path(), 'utf8'))[2].password, password)
    await click(drawer, 'I have stored them')

    await click(tab, 'Create batch')
    await drawer.getByText('Pasted names').click()
    await drawer.getByLabel('Names', { exact: true }).fill('valve-1\nvalve-1')
    await drawer.getByText('valve-1 is listed twice.').waitFor()
    await drawer.getByLabel('Names', { exact: true }).fill('valve-1\nvalve-2\n')
    await click(drawer, 'Create batch')
    await drawer.getByRole('row', { name: /valve-2/ }).waitFor()
    await click(drawer, 'I have stored them')
    assert.equal((await owner.get(`${place}/credentials`)).items.length, 5)

    await click(tab, 'Create claim token')
    await drawer.getByLabel('Name', { exact: true }).fill('line 2')
    await drawer.getByLabel('User prefix').fill('fan-')
    await drawer.getByLabel('Uses').fill('5')
    await click(drawer, 'Create claim token')
    const token = await drawer.getByTestId('secret').textContent()
    await drawer.getByText(/\| millrace claim fan-7 --url/).waitFor()
    const claim = { token, user: 'fan-1' }
    const key = { 'idempotency-key': randomUUID() }
    const claimed = await new Api(server.url).ask('POST', '/claim', claim, key)
    await harness.device({
      clientId: claimed.client_id,
      username: claimed.username,
      password: claimed.password,
    })
    await click(drawer, 'I have stored it')
    await tab.reload()
    await click(tab, 'line 2')
    await drawer.getByText('1 of 5').waitFor()
    await click(drawer, 'Delete claim token')
    await click(tab.getByRole('dialog', { name: 'Delete line 2?' }), 'Delete claim token')
    await tab.getByText('No claim token yet').waitFor()
  })
  await owner.ask('DELETE', place, undefined, { 'if-match': '*' })
})

test('rules: the highest QoS and RETAIN are part of them', async () => {
  await on(`/b/${broker}/access?tab=groups`, async (tab) => {
    await click(tab, 'Add group')
    const drawer = tab.getByRole('dialog')
    await drawer.getByLabel('Name').fill('sensors')
    await click(drawer, 'Add rule')
    await drawer.getByRole('combobox', { name: 'Highest QoS' }).click()
    await tab.getByRole('option', { name: 'up to QoS 1' }).click()
    await drawer.getByLabel('with RETAIN').uncheck()
    await click(drawer, 'Save group')
    await tab.getByText('allow publish up/%c/#, at most QoS 1, without RETAIN').waitFor()
    const { rules } = await owner.get(`${at}/groups/sensors`)
    assert.deepEqual(rules, [
      { effect: 'allow', action: 'publish', filter: 'up/%c/#', qos_max: 1, retain: false },
    ])
  })
})

test('bans: added, also where one of the same client has ended, and lifted', async () => {
  await owner.put(`${at}/bans/client_id-storm`, { client_id: 'storm', until_ms: 5 })
  await on(`/b/${broker}/access?tab=bans`, async (tab) => {
    await click(tab, 'Add ban')
    const drawer = tab.getByRole('dialog')
    await drawer.getByRole('textbox', { name: 'Client id' }).fill('storm')
    await drawer.getByLabel('Reason').fill('reconnects all the time')
    await click(drawer, 'Add ban')
    await tab.getByText('reconnects all the time').waitFor()
    assert.ok((await owner.get(`${at}/bans/client_id-storm`)).until_ms > Date.now())
    await click(tab, 'client id storm')
    await click(tab.getByRole('dialog'), 'Delete ban')
    const question = tab.getByRole('dialog', { name: /^Delete client_id-storm/ })
    await click(question, 'Delete ban')
    await tab.getByText('Nobody is banned').waitFor()
  })
})

test('ways in: anonymous clients may connect once that is switched on', async () => {
  const connect = () => harness.device({ clientId: 'anybody', username: `${broker}/`, password: '' })
  await assert.rejects(connect)
  await on(`/b/${broker}/access?tab=methods`, async (tab) => {
    await tab
      .getByLabel(/anonymous/i)
      .first()
      .check({ force: true })
    await click(tab, 'Save authentication')
    await until('the setting to be stored', async () => (await owner.get(`${at}/access`)).anonymous)
  })
  await until('an anonymous client to be let in', () => connect().catch(() => null))
})

test('webhooks: added, called, signed by a new key beside the old one, and deleted', async () => {
  const called = []
  const service = createServer((request, response) => {
    called.push(request.headers)
    request.resume()
    response.end()
  })
  service.listen(0, '127.0.0.1')
  await once(service, 'listening')
  try {
    await on(`/b/${broker}/webhooks`, async (tab) => {
      await click(tab, 'Add webhook')
      const drawer = tab.getByRole('dialog')
      await drawer.getByLabel('Name').fill('orders')
      await drawer.getByLabel('URL').fill(`http://127.0.0.1:${service.address().port}/hook`)
      await drawer.getByLabel('Message', { exact: true }).uncheck()
      await drawer.getByLabel('Connect', { exact: true }).check()
      await click(drawer, 'Save webhook')
      await tab.getByRole('heading', { level: 1, name: 'orders' }).waitFor()
      await click(tab, 'Send test event')
      await until('the test event', () => called.length > 0)

      await click(tab, 'Create signing key')
      await click(drawer, 'Create signing key')
      const first = await drawer.getByTestId('secret').textContent()
      await click(drawer, 'I have stored it')
      await click(tab, 'Rotate signing key')
      await click(drawer, 'Rotate signing key')
      await drawer.getByText(/^Requests are signed by keys \d+ and \d+ until /).waitFor()
      assert.notEqual(await drawer.getByTestId('secret').textContent(), first)
      await click(drawer, 'I have stored it')
      await tab.getByText(/^keys \d+ and \d+ until .*, then by key \d+ alone$/).waitFor()
      const before = called.length
      await click(tab, 'Send test event')
      await until('a test event with two signatures', () =>
        called.slice(before).some((headers) => headers['millrace-signature-keys']?.includes(',')),
      )

      await click(tab, 'Delete')
      const question = tab.getByRole('dialog', { name: 'Delete orders?' })
      await question.getByText(/queued events? and 0 dead letters are lost/).waitFor()
      await click(question, 'Delete webhook')
      await tab.getByText('No webhook yet').waitFor()
    })
  } finally {
    service.closeAllConnections()
    service.close()
  }
})

test('webhooks: the log names a refused request, and its event is sent again', async () => {
  let status = 422
  const service = createServer((request, response) => {
    request.resume()
    response.writeHead(status).end()
  })
  service.listen(0, '127.0.0.1')
  await once(service, 'listening')
  const hook = { url: `http://127.0.0.1:${service.address().port}/hook`, events: ['connect'] }
  try {
    await owner.put(`${at}/webhooks/strict`, hook)
    await on(`/b/${broker}/webhooks?webhook=strict`, async (tab) => {
      await tab.getByText('No request yet').waitFor()
      await click(tab, 'Send test event')
      const log = tab.getByRole('table', { name: 'Deliveries' })
      const refused = log.getByRole('row', { name: /The answer was 422/ })
      await refused.getByRole('button').click()
      const drawer = tab.getByRole('dialog', { name: 'Delivery' })
      await drawer.getByText('millrace.webhook.test').first().waitFor()
      status = 204
      await click(drawer, 'Send again')
      await log.getByRole('row', { name: /Taken, status 204/ }).waitFor()
      await tab.getByText('No dead letter').waitFor()
    })
  } finally {
    await owner.ask('DELETE', `${at}/webhooks/strict`, undefined, { 'if-match': '*' })
    service.closeAllConnections()
    service.close()
  }
})

test('usage: a range, a spend cap, and the numbers as a file', async () => {
  await on(`/b/${broker}/usage`, async (tab) => {
    await tab.getByText('24 h', { exact: true }).click()
    await tab.waitForURL(/range=24h/)
    await tab.getByLabel('Cap for a month').fill('25')
    await click(tab, 'Set cap')
    await tab.getByText(/of 25\.00/).waitFor()
    const [download] = await Promise.all([tab.waitForEvent('download'), click(tab, 'CSV')])
    const csv = await readFile(await download.path(), 'utf8')
    assert.ok(csv.split('\n').length > 24, csv)
    await tab.getByText('Last month', { exact: true }).click()
    await tab.waitForURL(/range=last-month/)
    const [bill] = await Promise.all([tab.waitForEvent('download'), click(tab, 'CSV')])
    const days = (await readFile(await bill.path(), 'utf8')).trim().split('\n').slice(1)
    assert.ok(days.length >= 28 && days.length <= 31, days.join('\n'))
    await click(tab, 'Remove cap')
    await click(tab.getByRole('dialog'), 'Remove cap')
    await tab.getByText('There is no cap').waitFor()
  })
})

test('settings: renamed, limited, suspended, resumed', async () => {
  await on(`/b/${broker}/settings`, async (tab) => {
    await tab.getByLabel('Name', { exact: true }).fill('Plant seven')
    await click(tab, 'Rename')
    await tab.getByText('The broker was renamed.').waitFor()
    await tab.getByLabel('Connections').fill('12')
    await click(tab, 'Save limits')
    await tab.getByText('The limits were saved.').waitFor()
    assert.equal((await owner.get(at)).limits.broker.connections, 12)
    await click(tab, 'Suspend broker')
    const question = tab.getByRole('dialog', { name: 'Suspend Plant seven?' })
    await question.getByText(/^\d+ connected clients? (is|are) disconnected, and refused until/).waitFor()
    await click(question, 'Suspend broker')
    await tab.getByText('This broker is suspended').waitFor()
    await click(tab, 'Resume broker')
    await click(tab.getByRole('dialog'), 'Resume broker')
    await tab.getByText('This broker is suspended').waitFor({ state: 'detached' })
  })
})

test('why not, after a suspension: the first check says no, and where to change it', async () => {
  await owner.post(`${at}/suspend`)
  await on(`/b/${broker}/clients/nobody`, async (tab) => {
    const step = tab.getByRole('listitem').filter({ hasText: 'The broker accepts clients' })
    await step.getByText('The broker is suspended. This still applies today.').waitFor()
    await step.getByRole('link', { name: 'Resume the broker' }).click()
    await tab.getByRole('button', { name: 'Resume broker' }).waitFor()
  })
  await owner.post(`${at}/resume`)
})

test('the organisation: invited, tokens, roles, renamed', async () => {
  const org = organisation.replace('/organisations/', '/org/')
  const bob = new Api(server.url)
  await on(`${org}?tab=invitations`, async (tab) => {
    await click(tab, 'Invite')
    const drawer = tab.getByRole('dialog', { name: 'Invite' })
    await drawer.getByLabel('E-mail address').fill('bob@example.org')
    await drawer.getByLabel('Viewer').check()
    await click(drawer, 'Invite')
    const link = await drawer.getByTestId('secret').textContent()
    await bob.signUp('Bob', new URL(link).hash.slice(1))
  })
  await on(org, async (tab) => {
    await tab.getByRole('combobox', { name: 'Role of Bob' }).click()
    await tab.getByRole('option', { name: 'Operator' }).click()
    await tab.getByText('Bob is operator now.').waitFor()
  })
  await on(`${org}?tab=tokens`, async (tab) => {
    await click(tab, 'Create token')
    const drawer = tab.getByRole('dialog')
    await drawer.getByLabel('Name').fill('deployment')
    await click(drawer, 'Create token')
    const secret = await drawer.getByTestId('secret').textContent()
    const answer = await fetch(`${server.url}/api/v1${organisation}/brokers`, {
      headers: { authorization: `Bearer ${secret}` },
    })
    assert.equal(answer.status, 200)
    await tab.keyboard.press('Escape')
    assert.equal(await drawer.getByTestId('secret').textContent(), secret)
    await click(drawer, 'I have stored it')
    await click(tab, 'Revoke')
    await click(tab.getByRole('dialog'), 'Revoke')
    await tab.getByText('No API token yet').waitFor()
  })
  await on(`${org}?tab=export`, async (tab) => {
    const [download] = await Promise.all([tab.waitForEvent('download'), click(tab, 'Export organisation')])
    assert.match(download.suggestedFilename(), /^ann-\d{4}-\d\d-\d\d\.jsonl$/)
    const lines = (await readFile(await download.path(), 'utf8')).trim().split('\n').map(JSON.parse)
    assert.equal(lines.at(-1).kind, 'end')
    const members = lines.filter(({ kind }) => kind === 'member')
    const counts = tab.getByRole('region', { name: 'What the file contains' })
    await counts.getByText('Members', { exact: true }).waitFor()
    assert.match(await counts.textContent(), new RegExp(`Members${members.length}[A-Z]`))
    // A connection that is lost in the middle saves nothing.
    let saved = 0
    tab.on('download', () => {
      saved += 1
    })
    await tab.route('**/export', async (route) => {
      const answer = await route.fetch()
      const half = (await answer.text()).split('\n').slice(0, 2).join('\n')
      await route.fulfill({ response: answer, body: `${half}\n` })
    })
    await click(tab, 'Export organisation')
    await tab.getByText('The export stopped after 2 lines, so nothing was saved.').waitFor()
    assert.equal(saved, 0)
  })
  await on(`${org}?tab=settings`, async (tab) => {
    await tab.getByLabel('Name of the organisation').fill('Millbrook')
    await click(tab, 'Rename')
    await tab.getByText('The organisation was renamed.').waitFor()
  })
  await on(`${org}?tab=audit`, async (tab) => {
    await tab
      .getByRole('row', { name: /Member changed/ })
      .first()
      .getByRole('button')
      .click()
    const entry = tab.getByRole('dialog', { name: 'Member changed' })
    await entry.getByText('operator').first().waitFor()
    // The address of an entry shows it to a colleague.
    await tab.reload()
    await entry.getByText('operator').first().waitFor()
  })
})

test('the account: name and password, the audit log of both, and the theme', async () => {
  const person = new Api(server.url)
  await person.signUp('Cleo')
  await on(
    '/me',
    async (tab) => {
      await tab.getByLabel('Name', { exact: true }).fill('Cleopatra')
      await click(tab, 'Change name')
      await tab.getByText('Your name was changed.').waitFor()
      const next = `${PASSWORD} either`
      await tab.getByRole('textbox', { name: 'Current password' }).fill(PASSWORD)
      await tab.getByRole('textbox', { name: 'New password' }).fill(next)
      await click(tab, 'Change password')
      await tab.getByText('Your password was changed.').waitFor()
      await tab.reload()
      const log = tab.getByRole('table', { name: 'Audit log' })
      await log.getByRole('row', { name: /Name changed/ }).waitFor()
      await log
        .getByRole('row', { name: /Password changed/ })
        .getByRole('button')
        .click()
      const drawer = tab.getByRole('dialog', { name: 'Password changed' })
      await drawer.getByText('cleo@example.org (person)').waitFor()
      await drawer.getByRole('button', { name: 'Close' }).click()
      await drawer.waitFor({ state: 'detached' })
      await new Api(server.url).post('/sign-in', { email: 'cleo@example.org', password: next })
      await click(tab, 'Use the dark theme')
      await tab.locator('html[data-mantine-color-scheme=dark]').waitFor()
      await tab.reload()
      await tab.locator('html[data-mantine-color-scheme=dark]').waitFor()
    },
    person,
  )
})

/** Buttons of pages that change something, and who is offered them. */
const OFFERS = [
  ['/b/$/access', 'Create credential', ['owner', 'operator']],
  ['/b/$/access', 'Create batch', ['owner', 'operator']],
  ['/b/$/access', 'Create claim token', ['owner', 'operator']],
  ['/b/$/access?tab=groups', 'Add group', ['owner', 'operator']],
  ['/b/$/access?tab=rules', 'Save rules', ['owner', 'operator']],
  ['/b/$/access?tab=bans', 'Add ban', ['owner', 'operator']],
  ['/b/$/webhooks', 'Add webhook', ['owner', 'operator']],
  ['/b/$/usage', 'Set cap', ['owner', 'operator']],
  ['/b/$/settings', 'Delete broker', ['owner', 'operator']],
  ['/b/$/connect', 'Create credential', ['owner', 'operator']],
  ['/b/$/clients/nobody', 'Ban', ['owner', 'operator']],
  ['/org/$?tab=invitations', 'Invite', ['owner']],
  ['/org/$?tab=tokens', 'Create token', ['owner']],
  ['/org/$?tab=settings', 'Delete organisation', ['owner']],
]

test('roles: each is offered what the API lets it do, and sees every page', async () => {
  for (const role of ['owner', 'operator', 'viewer']) {
    const { token } = await owner.post(`${organisation}/invitations`, { email: `${role}@example.org`, role })
    const person = new Api(server.url)
    await person.signUp(role, token)
    const { tab, context, complaints } = await harness.visitor(person)
    for (const [path, button, roles] of OFFERS) {
      const place = path.startsWith('/b/') ? broker : organisation.split('/').at(-1)
      await tab.goto(`${server.url}${path.replace('$', place)}`)
      await settled(tab)
      const offered = tab.getByRole('button', { name: button, exact: true })
      if (roles.includes(role)) await offered.first().waitFor()
      else assert.equal(await offered.count(), 0, `${role} is offered "${button}" at ${path}`)
      assert.equal(await tab.getByRole('alert').count(), 0, `${role} finds an error at ${path}`)
    }
    assert.deepEqual(complaints, [])
    await context.close()
  }
})

test('a session that ends while something is saved: the sign-in, and back to the page', async () => {
  const person = new Api(server.url)
  await person.post('/sign-in', { email: 'operator@example.org', password: PASSWORD })
  const { tab, context } = await harness.visitor(person)
  await tab.goto(`${server.url}/b/${broker}/settings`)
  await tab.getByLabel('Subscriptions', { exact: true }).fill('7')
  await person.post('/sign-out')
  await click(tab, 'Save limits')
  await tab.getByRole('heading', { name: 'Sign in' }).waitFor()
  await tab.getByLabel('E-mail address').fill('operator@example.org')
  await tab.getByRole('textbox', { name: 'Password' }).fill(PASSWORD)
  await click(tab, 'Sign in')
  await tab.getByRole('heading', { level: 1, name: 'Settings' }).waitFor()
  await context.close()
})

test('an organisation is deleted by its name, and its clients are counted before', async () => {
  const dora = new Api(server.url)
  const place = await dora.signUp('Dora')
  const { name } = await dora.post(`${place}/brokers`, { display_name: 'Mill' })
  const { secret } = await dora.post(`${place}/brokers/${name}/credentials`, { user: 'saw-1' })
  const saw = await harness.device({ clientId: 'saw-1', username: `${name}/saw-1`, password: secret })
  const gone = once(saw, 'close')
  const metrics = () => dora.get(`${place}/brokers/${name}/metrics`)
  await until('the device to be counted', async () => (await metrics()).connections === 1)
  await on(
    `${place.replace('/organisations/', '/org/')}?tab=settings`,
    async (tab) => {
      await click(tab, 'Delete organisation')
      const question = tab.getByRole('dialog', { name: 'Delete Dora?' })
      await question
        .getByText('1 broker with 1 connected client and 0 stored messages is lost, for 1 member.')
        .waitFor()
      await question.getByLabel('Type Dora to confirm').fill('Dora')
      await click(question, 'Delete organisation')
      await tab.getByText('No broker yet').waitFor()
    },
    dora,
  )
  await gone
})

test('a broker is deleted by its name, and all of it is counted before', async () => {
  await on(`/b/${broker}/settings`, async (tab) => {
    await click(tab, 'Delete broker')
    const question = tab.getByRole('dialog', { name: 'Delete Plant seven?' })
    await question
      .getByText(/0 sessions with 0 waiting messages, 0 retained messages, 0 credentials and 0 webhooks/)
      .waitFor()
    assert.ok(await question.getByRole('button', { name: 'Delete broker' }).isDisabled())
    await question.getByLabel('Type Plant seven to confirm').fill('Plant seven')
    await click(question, 'Delete broker')
    await tab.getByText('Plant seven was deleted.').waitFor()
    const { items } = await owner.get(`${organisation}/brokers`)
    assert.ok(!items.some(({ name }) => name === broker))
  })
})

test('a stored message is found, with the session that it waits for', async () => {
  const at = `${organisation}/brokers/default`
  const away = await harness.device({
    clientId: 'away-9',
    clean: false,
    properties: { sessionExpiryInterval: 3600 },
  })
  await away.subscribeAsync('hall/9/#', { qos: 1 })
  await away.endAsync()
  await owner.post(`${at}/publish`, { topic: 'hall/9/door', payload: 'open' })
  await on('/b/default/messages', async (tab) => {
    await tab.getByText('Name a topic').waitFor()
    await tab.getByLabel('Topic').fill('hall/9/door')
    await click(tab, 'Find messages')
    const row = tab
      .getByRole('table', { name: 'Stored messages' })
      .getByRole('row')
      .filter({ hasText: 'waits for 1' })
    await row.getByRole('button').click()
    const drawer = tab.getByRole('dialog', { name: 'hall/9/door' })
    await drawer.getByRole('link', { name: 'away-9' }).waitFor()
    await drawer.getByText('waits: offline').waitFor()
  })
  await on('/b/default/messages?topic=hall%2F9%2Fdoor&time=2020-01-01T12%3A00', async (tab) => {
    await tab.getByText('No stored message from that time').waitFor()
    await tab.getByRole('link', { name: 'Show the stored messages of all times' }).click()
    await tab.getByText('waits for 1').first().waitFor()
  })
  await on('/b/default/messages?topic=nobody', (tab) =>
    tab.getByText('No stored session subscribes to this topic').waitFor(),
  )
})

test('topics: one that passes appears in the tree, with its last message and for whom it is stored', async () => {
  const hall = await harness.device({
    clientId: 'hall-8',
    clean: false,
    properties: { sessionExpiryInterval: 60 },
  })
  await hall.subscribeAsync('hall/8/#', { qos: 1 })
  await on('/b/default/topics', async (tab) => {
    await tab.getByText('Listening to #').waitFor()
    await hall.publishAsync('hall/8/door', '{"open":true}', { qos: 1 })
    await tab.getByRole('link', { name: 'door' }).click()
    await tab.getByText('"open": true').waitFor()
    await tab.getByText('It has no retained message.').waitFor()
    await tab.getByText('hall/8/#').waitFor()
    await tab.getByText('1 subscription').waitFor()
    // Another filter forgets what does not match it.
    await tab.getByLabel('Topic filter').fill('hall/9/#')
    await tab.getByText('Listening to hall/9/#').waitFor()
    await tab.getByRole('link', { name: 'door' }).waitFor({ state: 'detached' })
  })
})

test('a stored message that waits for a webhook names the webhook', async () => {
  const at = `${organisation}/brokers/default`
  const webhook = { url: 'http://127.0.0.1:9/hook', events: ['message'], filters: ['hall/10/+'] }
  await owner.put(`${at}/webhooks/doors`, webhook)
  // A new webhook takes effect within two seconds.
  await until('a message that waits for the webhook', async () => {
    await owner.post(`${at}/publish`, { topic: 'hall/10/door', payload: 'open' })
    return (await owner.get(`${at}/messages?topic=hall%2F10%2Fdoor`)).items.length > 0
  })
  await on('/b/default/messages?topic=hall%2F10%2Fdoor', async (tab) => {
    await tab.getByRole('table', { name: 'Filters' }).getByText('webhook doors: hall/10/+').waitFor()
    const [row] = await tab
      .getByRole('table', { name: 'Stored messages' })
      .getByRole('row')
      .filter({ hasText: 'waits for 1' })
      .all()
    await row.getByRole('button').click()
    const receivers = tab
      .getByRole('dialog', { name: 'hall/10/door' })
      .getByRole('table', { name: 'Receivers' })
    await receivers.getByText('webhook doors: hall/10/+').waitFor()
    assert.equal(await tab.getByText('$share').count(), 0, "the name of the queue is the server's own")
    await receivers.getByRole('link', { name: 'doors' }).click()
    await tab.getByRole('heading', { level: 1, name: 'doors' }).waitFor()
  })
  await owner.ask('DELETE', `${at}/webhooks/doors`, undefined, { 'if-match': '*' })
})
