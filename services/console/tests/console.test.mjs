// The console in a real browser, against a real server with real MQTT clients. Nothing is mocked.
//
// Run by services/millrace/tests/clients/run.sh console, with MILLRACE and CHROMIUM set.

import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import { Harness, serious } from './harness.mjs'
import { counted } from './person.mjs'
import { Api, PASSWORD, Server } from './server.mjs'

let server
let harness
const device = (options) => harness.device(options)
const visitor = (api, options) => harness.visitor(api, options)

before(async () => {
  server = await Server.make({ 'sign-up': 'anybody' })
  harness = await Harness.on(server)
})

after(async () => {
  await harness?.close()
  await server?.stop()
})

let owner

test('the first run: four actions from make run to a connected device', async () => {
  const { tab, context, complaints } = await visitor()
  const person = counted(tab)
  // 1: the link that the server printed.
  await tab.goto(`${server.url}/#local=${server.link('/', 'local')}`)
  await tab.getByRole('heading', { level: 1, name: 'default' }).waitFor()
  assert.equal(new URL(tab.url()).pathname, '/b/default')
  assert.equal(new URL(tab.url()).hash, '')
  await tab.getByText('Running on this machine. Nobody else can reach it yet.').waitFor()
  await tab.getByText('Listening to #').waitFor()

  // 2: a snippet, 3: pasted into a terminal.
  await tab.getByRole('button', { name: 'Copy the publish command' }).click()
  const command = await tab.evaluate(() => navigator.clipboard.readText())
  assert.match(
    command,
    new RegExp(`^mosquitto_pub -h 127.0.0.1 -p ${server.ports.mqtt} -t hello/world -m hi$`),
  )
  person.pastes(command)
  await tab
    .getByRole('row', { name: /hello\/world/ })
    .filter({ hasText: 'hi' })
    .first()
    .waitFor()
  person.stop()
  const { actions } = person
  assert.ok(actions.length >= 3 && actions.length <= 4, actions.join('; '))
  assert.deepEqual(complaints, [])

  // Later tests look for it.
  await device({ clientId: 'first-device' })
  // The link of the log works in a tab that is open, too.
  await context.clearCookies()
  await tab.goto(`${server.url}/b/default#local=${server.link('/', 'local')}`)
  await tab.getByText('Listening to #').waitFor()
  assert.equal(new URL(tab.url()).hash, '')

  const [cookie] = await context.cookies()
  owner = new Api(server.url)
  owner.cookie = `${cookie.name}=${cookie.value}`
  owner.csrf = (await owner.get('/me')).csrf_token
  await context.close()
})

test('an account, a broker, a credential, and the device is seen by itself', async () => {
  const { tab, context, complaints } = await visitor()
  await tab.goto(`${server.url}/sign-up`)
  await tab.getByLabel('Your name').fill('Eve')
  await tab.getByLabel('E-mail address').fill('eve@example.org')
  await tab.getByRole('textbox', { name: 'Password' }).fill('too short')
  await tab.getByRole('button', { name: 'Create account' }).click()
  await tab.getByText(/must have at least 15 characters/i).waitFor()
  const password = tab.getByRole('textbox', { name: 'Password' })
  assert.equal(await password.getAttribute('aria-invalid'), 'true')
  await tab.getByRole('textbox', { name: 'Password' }).fill(PASSWORD)
  await tab.getByRole('button', { name: 'Create account' }).click()
  await tab.getByText('No broker yet').waitFor()

  await tab.getByRole('link', { name: 'Create broker' }).first().click()
  await tab.getByLabel('Name').fill('Plant 7')
  await tab.getByRole('button', { name: 'Create broker' }).click()
  await tab.getByText('Waiting for a device').waitFor()
  assert.equal(await tab.title(), 'Connect · Plant 7 · Millrace')
  await tab.getByText(`mqtt://127.0.0.1:${server.ports.mqtt}`, { exact: true }).waitFor()
  await tab.getByRole('button', { name: 'Create credential' }).click()
  const secret = await tab.getByTestId('secret').textContent()
  await tab.getByRole('tab', { name: 'JavaScript' }).click()
  const snippet = await tab.locator('pre', { hasText: 'mqtt.connect' }).textContent()
  assert.ok(snippet.includes(secret))
  // The snippet as it was pasted, but for the module's name.
  const [, url] = /connect\("([^"]+)"/.exec(snippet)
  const username = /username: "([^"]+)"/.exec(snippet)[1]
  assert.equal(url, `mqtt://127.0.0.1:${server.ports.mqtt}`)

  await device({ clientId: 'esp32-7', username, password: 'wrong' }).catch(() => {})
  await tab.getByText('esp32-7 was refused').waitFor()
  await tab.getByRole('link', { name: 'See which check refused it' }).waitFor()
  await device({ clientId: 'esp32-7', username, password: secret })
  await tab.getByText('esp32-7 is connected').waitFor()
  await tab.getByRole('link', { name: 'Watch its messages' }).click()
  await tab.getByText(/Connected as console-/).waitFor()
  await tab.goBack()
  assert.equal(await tab.getByTestId('secret').textContent(), secret)
  await tab.getByRole('button', { name: 'Create another credential' }).click()
  await tab.getByRole('button', { name: 'Create credential' }).waitFor()
  assert.deepEqual(complaints, [])
  await context.close()
})

test('live: filters, publish, and what was published', async () => {
  const { tab, context, complaints } = await visitor(owner)
  await tab.goto(`${server.url}/b/default/live?filters=plant%2F%23`)
  await tab.getByText(/Connected as console-/).waitFor()
  await tab.getByLabel('Topic', { exact: true }).fill('plant/1/state')
  await tab.getByLabel('Payload', { exact: true }).fill('{"on":true}')
  await tab.getByRole('button', { name: 'Publish' }).click()
  await tab.getByText('Acknowledged: the server has stored it').waitFor()
  const row = tab.getByRole('row', { name: /plant\/1\/state/ })
  await row.getByRole('button').first().click()
  await tab.getByRole('dialog').getByText('"on": true').waitFor()
  assert.deepEqual(complaints, [])
  await context.close()
})

test('clients: found, shown, disconnected', async () => {
  const { tab, context } = await visitor(owner)
  const client = await device({ clientId: 'pump-7' })
  const gone = new Promise((resolve) => client.once('close', resolve))
  await tab.goto(`${server.url}/b/default/clients`)
  await tab.getByLabel('Search clients').fill('pump')
  await tab.getByRole('link', { name: 'pump-7' }).click()
  await tab.getByText('nothing: the broker allows anonymous clients').waitFor()
  await tab.getByRole('button', { name: 'Disconnect' }).click()
  await tab.getByRole('dialog').getByRole('button', { name: 'Disconnect' }).click()
  await gone
  await tab.getByText('Not connected', { exact: true }).waitFor()
  await context.close()
})

test('trace: waits for the client, shows its packets, can be filtered, paused and exported', async () => {
  const { tab, context } = await visitor(owner)
  await tab.goto(`${server.url}/b/default/clients/traced-1`)
  await tab.getByRole('tab', { name: 'Trace' }).click()
  await tab.getByText('Start the trace', { exact: false }).waitFor()
  await tab.getByRole('button', { name: 'Start trace' }).click()
  await tab.getByText('The client is not connected. Waiting for its CONNECT.').waitFor()
  const client = await device({ clientId: 'traced-1' })
  await tab.getByText('CONNACK', { exact: true }).waitFor()
  await client.subscribeAsync('traced/#', { qos: 1 })
  await client.publishAsync('traced/value', 'top secret', { qos: 1 })
  await tab.getByText('traced/value', { exact: false }).first().waitFor()
  assert.equal(await tab.getByText('top secret').count(), 0)
  const choose = async (name) => {
    await tab.getByRole('combobox', { name: 'Packets' }).click()
    await tab.getByRole('option', { name }).click()
  }
  await choose('Subscriptions')
  await tab.getByText('SUBACK', { exact: true }).waitFor()
  await tab.getByText('CONNACK', { exact: true }).waitFor({ state: 'detached' })
  await choose('All packets')
  const [file] = await Promise.all([
    tab.waitForEvent('download'),
    tab.getByRole('button', { name: 'Export' }).click(),
  ])
  const lines = (await readFile(await file.path(), 'utf8')).trim().split('\n')
  assert.equal(JSON.parse(lines[0]).kind, 'CONNECT')
  await tab.getByRole('button', { name: 'Pause' }).click()
  await tab.getByText('Paused', { exact: false }).waitFor()
  await client.publishAsync('traced/paused', 'x', { qos: 1 })
  await tab.getByText(/Paused, [1-9]\d* events? missed/).waitFor()
  assert.equal(await tab.getByText('traced/paused').count(), 0)
  await tab.getByRole('button', { name: 'Resume' }).click()
  await client.endAsync()
  await tab.getByText('closed', { exact: true }).waitFor()
  await tab.getByRole('tab', { name: 'Overview' }).click()
  await tab.getByText('No stored session').waitFor()
  await context.close()
})

test('sessions and retained messages: seen, and cleared', async () => {
  const away = await device({ clientId: 'away-1', clean: false, properties: { sessionExpiryInterval: 3600 } })
  await away.subscribeAsync('plant/#', { qos: 1 })
  await away.endAsync()
  const other = await device({ clientId: 'other' })
  for (const at of [1, 2, 3])
    await other.publishAsync(`plant/${at}/value`, String(at), { qos: 1, retain: true })
  const { tab, context } = await visitor(owner)
  await tab.goto(`${server.url}/b/default/sessions?session=away-1`)
  const drawer = tab.getByRole('dialog', { name: 'away-1' })
  await drawer.getByText(/3 messages/).waitFor()
  await drawer.getByRole('button', { name: 'Clear session' }).click()
  await tab.getByText('3 waiting messages and 1 subscription are lost').waitFor()
  await tab.getByLabel('Type away-1 to confirm').fill('away-1')
  await tab
    .getByRole('dialog', { name: /Clear the session/ })
    .getByRole('button', { name: 'Clear session' })
    .click()
  await tab.getByText('No stored session').waitFor()

  await tab.goto(`${server.url}/b/default/topics?topic=plant%2F2%2Fvalue`)
  await tab.getByRole('button', { name: 'Clear' }).click()
  await tab.getByRole('dialog').getByRole('button', { name: 'Clear' }).click()
  await tab.getByRole('link', { name: '2/value' }).waitFor({ state: 'detached' })
  await tab.getByRole('link', { name: '3/value' }).waitFor()
  await context.close()
})

test('access: a rule is written, tried, and counts', async () => {
  const { tab, context } = await visitor(owner)
  const { name } = await owner.post(`${await organisation()}/brokers`, { display_name: 'Plant 8' })
  await tab.goto(`${server.url}/b/${name}/access?tab=groups`)
  await tab.getByRole('button', { name: 'Add group' }).click()
  await tab.getByLabel('Name').fill('pumps')
  await tab.getByRole('button', { name: 'Add rule' }).click()
  await tab.getByRole('button', { name: 'Save group' }).click()
  await tab.getByText('allow publish up/%c/#').waitFor()
  await owner.post(`${await organisation()}/brokers/${name}/credentials`, { user: 'pump-9', group: 'pumps' })
  await tab.goto(`${server.url}/b/${name}/access?tab=test`)
  await tab.getByLabel('Client id').fill('pump-9')
  await tab.getByLabel('User').fill('pump-9')
  await tab.getByLabel('Topic').fill('up/pump-9/state')
  await tab.getByRole('button', { name: 'Test', exact: true }).click()
  await tab.getByText('✓ Allowed').waitFor()
  await tab.getByText('1. allow publish up/%c/#').waitFor()
  await tab.getByLabel('Topic').fill('secret/plan')
  await tab.getByRole('button', { name: 'Test', exact: true }).click()
  await tab.getByText('✕ Denied').waitFor()
  await context.close()
})

async function organisation() {
  const { organisations } = await owner.get('/me')
  return `/organisations/${organisations[0].id}`
}

test('why not: the check that refused a CONNECT, and the rule that refused a PUBLISH', async () => {
  const { name } = await owner.post(`${await organisation()}/brokers`, { display_name: 'Refusals' })
  const at = `${await organisation()}/brokers/${name}`
  const rules = [
    { effect: 'allow', action: 'publish', filter: 'up/%c/#' },
    { effect: 'deny', action: 'all', filter: 'secret/#' },
  ]
  await owner.put(`${at}/groups/pumps`, { rules })
  const { secret } = await owner.post(`${at}/credentials`, { user: 'pump-3', group: 'pumps' })
  const username = `${name}/pump-3`
  await device({ clientId: 'pump-3', username, password: 'wrong' }).catch(() => {})

  const { tab, context, complaints } = await visitor(owner)
  await tab.goto(`${server.url}/b/${name}/clients/pump-3`)
  const steps = tab.getByRole('list', { name: 'Decision path' }).getByRole('listitem')
  const identity = steps.filter({ hasText: 'User, token or certificate' })
  await identity.getByText('The user name or the password is wrong').waitFor()
  await identity.getByRole('img', { name: 'Refused' }).waitFor()
  await steps.filter({ hasText: 'Limits' }).getByRole('img', { name: 'Passed' }).waitFor()

  const client = await device({ clientId: 'pump-3', username, password: secret })
  await client.publishAsync('secret/plan', 'x', { qos: 1 }).catch(() => {})
  await tab.getByText('Known as user pump-3, by password').waitFor()
  await tab.getByText('PUBLISH', { exact: true }).click()
  const rule = steps.filter({ hasText: 'Rules of group pumps' })
  await rule.getByText('Rule 2: deny all secret/#').waitFor()
  await tab.getByLabel('Topic', { exact: true }).fill('up/pump-3/state')
  await rule.getByText('Rule 1: allow publish up/%c/#').waitFor()
  await rule.getByRole('img', { name: 'Passed' }).waitFor()
  await rule.getByRole('link', { name: 'Edit group pumps' }).click()
  await tab.getByRole('dialog').getByRole('button', { name: 'Save group' }).waitFor()

  await owner.put(`${at}/bans/storm`, { client_id: 'pump-3', reason: 'reconnects all the time' })
  await tab.goto(`${server.url}/b/${name}/clients/pump-3?packet=connect`)
  await steps.filter({ hasText: 'Bans' }).getByText('The ban storm keeps it out: reconnects').waitFor()
  assert.deepEqual(complaints, [])
  await context.close()
})

test('overview: the past by hours, what was refused by reason, and the last events', async () => {
  const brokers = await owner.get(`${await organisation()}/brokers`)
  const { name } = brokers.items.find(({ display_name }) => display_name === 'Refusals')
  const { tab, context, complaints } = await visitor(owner)
  await tab.goto(`${server.url}/b/${name}`)
  await tab.getByText('24 h', { exact: true }).click()
  await tab.getByText('Refused and dropped in 10 minutes').waitFor()
  assert.equal(new URL(tab.url()).search, '?range=24h')
  await tab.getByText('30 d', { exact: true }).click()
  await tab.getByText('Refused and dropped an hour').waitFor()
  await tab.getByText('In the last 7 days: incidents are kept no longer.').waitFor()
  await tab.getByText('24 h', { exact: true }).click()
  const reason = tab.getByRole('link', { name: /Publish refused: Not allowed to publish/ })
  await reason.waitFor()
  const events = tab.locator('section', { hasText: 'Last events' }).getByRole('listitem')
  await events.filter({ hasText: 'Ban created storm' }).waitFor()
  await events.filter({ hasText: 'pump-3' }).first().waitFor()
  await reason.click()
  await tab.getByRole('heading', { level: 1, name: 'Incidents' }).waitFor()
  assert.equal(new URL(tab.url()).search, '?kind=publish_refused')
  await tab.getByRole('row', { name: /secret\/plan/ }).waitFor()
  assert.deepEqual(complaints, [])
  await context.close()
})

test('overview: the history has the time to PUBACK, the backlog, and drops by reason', async () => {
  const away = await device({ clientId: 'away-2', clean: false, properties: { sessionExpiryInterval: 3600 } })
  await away.subscribeAsync('backlog/#', { qos: 1 })
  await away.endAsync()
  const busy = await device({ clientId: 'busy' })
  for (const at of [1, 2, 3]) await busy.publishAsync('backlog/now', String(at), { qos: 1 })
  // A receiver that takes small packets alone.
  const small = await device({ clientId: 'small', properties: { maximumPacketSize: 64 } })
  await small.subscribeAsync('large/#')
  await busy.publishAsync('large/now', 'x'.repeat(100), { qos: 1 })
  const { tab, context, complaints } = await visitor(owner)
  const young = await owner.post(`${await organisation()}/brokers`, { display_name: 'Young' })
  await tab.goto(`${server.url}/b/${young.name}?range=1h`)
  await tab.getByText('No data yet: the server stores each minute when the minute has ended.').waitFor()
  await tab.goto(`${server.url}/b/default?range=1h`)
  const chart = (name) => tab.getByRole('figure').filter({ hasText: name })
  // Servers store a minute when it is over.
  const wait = { timeout: 150_000 }
  await chart('Time to PUBACK')
    .getByText(/^\d+\.\d ms$/)
    .first()
    .waitFor(wait)
  await chart('Stored messages')
    .getByText(/^[1-9]\d*$/)
    .waitFor(wait)
  await chart('Refused and dropped a minute').getByText('too large for receiver').waitFor(wait)
  await tab.getByRole('radiogroup', { name: 'Time range' }).getByText('Live').click()
  await chart('Stored messages')
    .getByText(/^[1-9]\d*$/)
    .waitFor()
  assert.deepEqual(complaints, [])
  await context.close()
})

test('overview: a reload keeps the charts; a sign-out leads to the sign-in and does not', async () => {
  const person = new Api(server.url)
  await person.post('/sign-in', { email: 'eve@example.org', password: PASSWORD })
  const { tab, context, complaints } = await visitor(person)
  await tab.goto(`${server.url}/?all=true`)
  await tab.getByRole('heading', { name: 'Plant 7' }).click()
  // The page says so from the second sample on. Other clients may have come or gone meanwhile.
  const trend = tab.getByText(/^steady$|^[↑↓] from /).first()
  await trend.waitFor()
  // The first samples of the page that is loaded again never come.
  await context.route('**/metrics/stream', (route) => route.abort())
  await tab.reload()
  await trend.waitFor()
  const stored = () => tab.evaluate(() => Object.keys(sessionStorage).filter((name) => /metrics/.test(name)))
  assert.equal((await stored()).length, 1)
  await tab.getByRole('button', { name: /^Account of/ }).click()
  await tab.getByRole('menuitem', { name: 'Sign out' }).click()
  await tab.getByRole('heading', { name: 'Sign in' }).waitFor()
  assert.deepEqual(await stored(), [])
  await tab.reload()
  await tab.getByRole('heading', { name: 'Sign in' }).waitFor()
  assert.deepEqual(await stored(), [])
  assert.deepEqual(complaints, [])
  await context.close()
})

test('roles: a viewer sees and changes nothing, an operator changes brokers', async () => {
  const { organisations } = await owner.get('/me')
  for (const role of ['viewer', 'operator']) {
    const organisation = `/organisations/${organisations[0].id}`
    const { token } = await owner.post(`${organisation}/invitations`, { email: `${role}@example.org`, role })
    const person = new Api(server.url)
    await person.signUp(role, token)
    const { tab, context, complaints } = await visitor(person)
    await tab.goto(`${server.url}/b/default/settings`)
    await tab.getByRole('heading', { name: 'Limits' }).waitFor()
    const canDelete = await tab.getByRole('button', { name: 'Delete broker' }).count()
    assert.equal(canDelete, role === 'operator' ? 1 : 0)
    await tab.goto(`${server.url}/b/default/live`)
    await tab.getByText(/Connected as console-/).waitFor()
    assert.equal(await tab.getByRole('button', { name: 'Publish' }).count(), role === 'operator' ? 1 : 0)
    await tab.goto(`${server.url}/org/${organisations[0].id}?tab=tokens`)
    await tab.getByText('No API token yet').waitFor()
    assert.equal(await tab.getByRole('button', { name: 'Create token' }).count(), 0)
    assert.deepEqual(complaints, [])
    await context.close()
  }
})

test('an expired session asks for the sign-in and comes back to the page', async () => {
  const person = new Api(server.url)
  const place = await person.signUp('Una')
  await person.post(`${place}/brokers`, { display_name: 'Plant 8' })
  const { tab, context } = await visitor(person)
  await tab.goto(`${server.url}/?all=true`)
  await tab.getByRole('heading', { name: 'Plant 8' }).click()
  await tab.getByRole('link', { name: 'Incidents', exact: true }).click()
  await tab.getByRole('heading', { name: 'Incidents' }).waitFor()
  await person.post('/sign-out')
  await tab.getByRole('heading', { name: 'Sign in' }).waitFor()
  await tab.getByLabel('E-mail address').fill(person.email)
  await tab.getByRole('textbox', { name: 'Password' }).fill(PASSWORD)
  await tab.getByRole('button', { name: 'Sign in' }).click()
  await tab.getByRole('heading', { name: 'Incidents' }).waitFor()
  await context.close()
})

test('a server that is killed and started again: each page keeps its data and catches up', async () => {
  const { tab, context, complaints } = await visitor(owner)
  await tab.goto(`${server.url}/b/default/clients`)
  await tab.getByRole('link', { name: 'first-device' }).waitFor()
  const overview = await context.newPage()
  await overview.goto(`${server.url}/b/default`)
  await overview.getByText('Listening to #').waitFor()
  await overview.waitForFunction(() =>
    performance.getEntriesByType('resource').some(({ name }) => /Sessions-.*\.js/.test(name)),
  )
  const live = await context.newPage()
  await live.goto(`${server.url}/b/default/live?filters=after%2F%23`)
  await live.getByText(/Connected as console-/).waitFor()

  await server.kill()
  const away = /The server stopped answering/
  for (const page of [tab, overview, live]) {
    await page.bringToFront()
    await page.getByText(away).waitFor()
  }
  assert.equal(await tab.getByRole('link', { name: 'first-device' }).count(), 1)
  await overview.getByRole('heading', { level: 1, name: 'default' }).waitFor()
  // A page whose data nobody has asked for yet.
  await overview.getByRole('link', { name: 'Sessions', exact: true }).click()
  await overview.getByText('The server does not answer', { exact: true }).waitFor()

  await server.start()
  const client = await device({ clientId: 'after-the-restart' })
  await tab.bringToFront()
  await tab.getByRole('link', { name: 'after-the-restart' }).waitFor()
  await overview.bringToFront()
  await overview
    .getByRole('textbox', { name: 'Search sessions' })
    .or(overview.getByText('No stored session'))
    .first()
    .waitFor()
  await overview.getByRole('link', { name: 'Overview', exact: true }).click()
  await overview.getByText('Listening to #').waitFor()
  await overview.getByText('0 acknowledged commits lost').waitFor()
  await live.bringToFront()
  await live.getByText(/Connected as console-/).waitFor()
  await client.publishAsync('after/restart', 'x', { qos: 1, retain: true })
  await live
    .getByRole('row', { name: /after\/restart/ })
    .first()
    .waitFor()
  for (const page of [tab, overview, live]) {
    await page.bringToFront()
    await page.getByText(away).waitFor({ state: 'detached' })
  }
  assert.deepEqual(complaints, [])
  await context.close()
})

test('the keyboard: the palette finds a client, g and a letter go to a page', async () => {
  const { tab, context } = await visitor(owner)
  await tab.goto(`${server.url}/b/default`)
  await tab.getByRole('heading', { level: 1 }).waitFor()
  await tab.keyboard.press('Control+k')
  await tab.getByRole('combobox', { name: 'Search' }).fill('after-the')
  await tab.getByText('after-the-restart').waitFor()
  await tab.keyboard.press('Enter')
  await tab.getByRole('heading', { level: 1, name: 'after-the-restart' }).waitFor()
  // A client that is not connected: Enter answers why.
  await tab.keyboard.press('Control+k')
  await tab.getByRole('combobox', { name: 'Search' }).fill('nobody-1')
  await tab.getByText('Why was nobody-1 refused?').waitFor()
  await tab.keyboard.press('Enter')
  await tab.getByRole('heading', { level: 1, name: 'nobody-1' }).waitFor()
  await tab.keyboard.press('g')
  await tab.keyboard.press('t')
  await tab.getByRole('heading', { level: 1, name: 'Topics' }).waitFor()
  await context.close()
})

/** Presses Tab until something has the focus, which must be seen. */
async function reach(tab, target) {
  await target.waitFor()
  for (let presses = 0; presses < TABS_MAX; presses += 1) {
    const [isThere, ring] = await target.evaluate((one) => {
      const input = one.closest('.mantine-Input-wrapper') ?? one
      const { outlineStyle, outlineWidth } = getComputedStyle(one)
      const isRinged = outlineStyle !== 'none' && outlineWidth !== '0px'
      return [document.activeElement === one, isRinged || input !== one]
    })
    if (isThere) return assert.ok(ring, `the focus of ${target} is not seen`)
    await tab.keyboard.press('Tab')
  }
  assert.fail(`${target} is not reached by keyboard`)
}
const TABS_MAX = 60

test('the keyboard alone: an account, a broker, a credential, and a snippet', async () => {
  const { tab, context, complaints } = await visitor()
  const press = (key) => tab.keyboard.press(key)
  const choose = async (role, name) => {
    await reach(tab, tab.getByRole(role, { name, exact: true }).first())
    await press('Enter')
  }
  const type = async (name, text) => {
    await reach(tab, tab.getByRole('textbox', { name, exact: true }))
    await press('Control+a')
    await tab.keyboard.type(text)
  }
  await tab.goto(`${server.url}/sign-up`)
  await type('Your name', 'Kim')
  await type('E-mail address', 'kim@example.org')
  await type('Password', PASSWORD)
  // The typed password is shown without a mouse, too.
  await reach(tab, tab.getByRole('button', { name: 'Show what is typed' }))
  await press('Enter')
  assert.equal(await tab.getByRole('textbox', { name: 'Password' }).getAttribute('type'), 'text')
  await choose('button', 'Create account')
  await tab.getByText('No broker yet').waitFor()
  await reach(tab, tab.getByRole('link', { name: 'Skip to content' }))
  await choose('link', 'Create broker')
  await type('Name', 'By keyboard')
  await press('Enter')
  await tab.getByText('Waiting for a device').waitFor()
  await choose('button', 'Create credential')
  const secret = await tab.getByTestId('secret').textContent()
  await reach(tab, tab.getByRole('tab', { name: 'mosquitto' }))
  await press('ArrowRight')
  await tab.getByRole('tab', { selected: true, name: 'Python' }).waitFor()
  await choose('button', 'Copy the snippet')
  const snippet = await tab.evaluate(() => navigator.clipboard.readText())
  assert.ok(snippet.includes(secret), snippet)
  assert.deepEqual(complaints, [])
  await context.close()
})

test('a screen reader hears the page that opens, the copy, and how many messages came', async () => {
  const { tab, context, complaints } = await visitor(owner)
  await tab.goto(`${server.url}/b/default`)
  await tab.getByText('Listening to #').waitFor()
  const heard = (text) => tab.getByRole('status').filter({ hasText: text }).waitFor({ state: 'attached' })
  const copied = heard(/^Copied$/)
  await tab.getByRole('button', { name: 'Copy the publish command' }).press('Enter')
  await copied
  const page = heard(/^Clients, default$/)
  await tab.getByRole('link', { name: 'Clients' }).press('Enter')
  await page
  await tab.getByRole('link', { name: 'Live' }).press('Enter')
  await tab.getByText(/Connected as console-/).waitFor()
  // Retained messages of other tests may come with it.
  const message = heard(/^\d+ messages? received$/)
  const client = await device({ clientId: 'heard' })
  await client.publishAsync('heard/once', 'hi')
  await message
  assert.deepEqual(complaints, [])
  await context.close()
})

test('the palette has a name and readable actions, and gives the focus back', async () => {
  const { tab, context, complaints } = await visitor(owner)
  await tab.goto(`${server.url}/b/default`)
  const link = tab.getByRole('link', { name: 'Connect a device' }).first()
  await link.focus()
  await tab.keyboard.press('Control+k')
  const input = tab.getByRole('dialog', { name: 'Search' }).getByRole('combobox', { name: 'Search' })
  await input.fill('access')
  await tab.locator('[data-action][data-selected]').waitFor()
  assert.deepEqual(await serious(tab), [])
  await tab.keyboard.press('Escape')
  await input.waitFor({ state: 'detached' })
  await tab.waitForFunction(() => document.activeElement.textContent === 'Connect a device')
  assert.deepEqual(complaints, [])
  await context.close()
})

test('the focus stays on its client while the list is pulled at its scroll bar', async () => {
  const names = Array.from({ length: 60 }, (_, at) => `pulled-${String(at).padStart(2, '0')}`)
  await Promise.all(names.map((clientId) => device({ clientId })))
  const { tab, context, complaints } = await visitor(owner)
  await tab.goto(`${server.url}/b/default/clients?search=pulled`)
  const table = tab.getByRole('table', { name: 'Connected clients' })
  const focused = () => tab.evaluate(() => document.activeElement.title)
  // Every row of the list is another one after this.
  const pull = (to) =>
    table.evaluate(async (one, to) => {
      const list = one.querySelector('[tabindex]')
      list.scrollTop = to * list.scrollHeight
      for (let frames = 0; frames < 3; frames += 1) await new Promise(requestAnimationFrame)
    }, to)
  await tab.getByText('60 connected').waitFor()
  await tab.getByRole('link', { name: 'pulled-05' }).focus()
  for (const [to, seen] of [
    [0.7, 'pulled-45'],
    [0.35, 'pulled-25'],
    [1, 'pulled-59'],
    [0, 'pulled-00'],
  ]) {
    await pull(to)
    await table.getByRole('link', { name: seen }).waitFor()
    assert.equal(await focused(), 'pulled-05', `pulled to ${to}`)
  }
  await tab.keyboard.press('Tab')
  assert.equal(await focused(), 'pulled-06')
  const order = await table.getByRole('link').allTextContents()
  assert.deepEqual(order, order.toSorted())
  assert.deepEqual(complaints, [])
  await context.close()
})

test('nothing comes from other hosts', async () => {
  const { tab, context } = await visitor(owner)
  const answers = []
  tab.on('response', (response) => answers.push(response))
  await tab.goto(`${server.url}/b/default`)
  await tab.getByText('Listening to #').waitFor()
  await tab.locator('canvas').first().waitFor()
  const hosts = new Set(answers.map((answer) => new URL(answer.url()).host))
  assert.deepEqual([...hosts], [new URL(server.url).host])
  const policy = answers[0].headers()['content-security-policy']
  assert.match(policy, /default-src 'none'; script-src 'self';/)
  await context.close()
})
