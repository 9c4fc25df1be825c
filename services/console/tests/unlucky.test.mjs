// People who are unlucky: a server that refuses or is slow, a change in another tab, a session that ends, names and messages that
// nobody expects.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { settled } from './harness.mjs'
import { Api, PASSWORD, until } from './server.mjs'
import { stage } from './stage.mjs'

const { server, harness, owner, organisation, broker, at } = await stage()

const open = async (path, api = owner) => {
  const visitor = await harness.visitor(api)
  await visitor.tab.goto(`${server.url}${path}`)
  await settled(visitor.tab)
  return visitor
}
const button = (tab, name) => tab.getByRole('button', { name, exact: true })
const submit = (tab, name) => tab.locator('button[type=submit]', { hasText: name })

/** Answers each change of a page instead of the server. */
const answer = (tab, fulfil) =>
  tab.route('**/api/v1/**', (route) =>
    /^(GET|HEAD)$/.test(route.request().method()) ? route.continue() : fulfil(route),
  )

/** Forms with a field of text: where, what is typed, the button. */
const forms = () => [
  ['/brokers/new', 'Name', 'Plant 8', 'Create broker'],
  [`/b/${broker}/access?edit=%2B`, 'User', 'pump-7', 'Create credential'],
  [`/b/${broker}/access?tab=groups&edit=%2B`, 'Name', 'pumps', 'Save group'],
  [`/b/${broker}/access?tab=bans&edit=%2B`, 'Client id', 'storm', 'Add ban'],
  [`/b/${broker}/access?tab=test`, 'Client id', 'pump-7', 'Test', { Topic: 'a/b' }],
  [`/b/${broker}/webhooks?edit=%2B`, 'Name', 'orders', 'Save webhook', { URL: 'https://example.org/hook' }],
  [`/b/${broker}/settings`, 'Name', 'Plant seven', 'Rename'],
  [`/b/${broker}/usage`, 'Cap for a month', '25', 'Set cap'],
  [`${organisation.replace('/organisations', '/org')}?tab=tokens&edit=%2B`, 'Name', 'deploy', 'Create token'],
  [
    `${organisation.replace('/organisations', '/org')}?tab=invitations&edit=%2B`,
    'E-mail address',
    'bob@example.org',
    'Invite',
  ],
  ['/me', 'Name', 'Ann Other', 'Change name'],
]
const REFUSALS = [422, 409, 403, 429, 500]

test('each form says why the server refuses it, with the id of the request, and keeps what was typed', async () => {
  const { tab, context, complaints } = await open('/')
  let status
  await answer(tab, (route) =>
    route.fulfill({
      status,
      headers: { 'x-request-id': `request-${status}`, 'retry-after': '60' },
      json: { type: 'urn:millrace:problem:test', title: 'no', status, detail: `the test says ${status}` },
    }),
  )
  for (const [path, label, typed, verb, more = {}] of forms()) {
    await tab.goto(`${server.url}${path}`)
    await settled(tab)
    const field = tab.getByRole('textbox', { name: label, exact: true }).last()
    await field.fill(typed)
    for (const [other, value] of Object.entries(more))
      await tab.getByRole('textbox', { name: other, exact: true }).fill(value)
    for (status of REFUSALS) {
      await submit(tab, verb).last().click()
      const alert = tab.getByRole('alert').filter({ hasText: `The test says ${status}.` })
      await alert
        .waitFor({ timeout: 15_000 })
        .catch(() => assert.fail(`${path} says nothing after ${status}`))
      assert.match(await alert.textContent(), new RegExp(`request-${status}`), path)
      if (status === 429) assert.match(await alert.textContent(), /Wait/, path)
      assert.equal(await field.inputValue(), typed, `${path} after ${status}`)
    }
  }
  assert.deepEqual(complaints, [])
  await context.close()
})

test('a slow server: one request for a double click, and a word after some seconds', async () => {
  const { tab, context, complaints } = await open(`/b/${broker}/access?tab=groups&edit=%2B`)
  let asked = 0
  await answer(tab, async (route) => {
    asked += 1
    await new Promise((resolve) => setTimeout(resolve, 6_000))
    await route.continue()
  })
  await tab.getByRole('textbox', { name: 'Name' }).fill('slow')
  // Both clicks come before the page is drawn anew.
  await submit(tab, 'Save group').evaluate((one) => {
    one.click()
    one.click()
  })
  await tab.getByText('The server is taking a long time to answer. Your input is kept.').waitFor()
  await tab.getByRole('button', { name: 'slow', exact: true }).waitFor()
  assert.equal(asked, 1)
  assert.deepEqual(complaints, [])
  await context.close()
})

test('a request that never ends is given up after a minute, and can be sent again', async () => {
  const { tab, context } = await harness.visitor(owner)
  await tab.clock.install()
  await tab.goto(`${server.url}/b/${broker}/access?edit=%2B`)
  await settled(tab)
  let isStuck = true
  await answer(tab, (route) => (isStuck ? undefined : route.continue()))
  await tab.getByRole('textbox', { name: 'User' }).fill('patient')
  await submit(tab, 'Create credential').click()
  await submit(tab, 'Create credential').and(tab.locator('[data-loading]')).waitFor()
  await tab.clock.fastForward(61_000)
  await tab.getByText('Your input is still here. Try again when the server answers.').waitFor()
  isStuck = false
  await submit(tab, 'Create credential').click()
  await tab.getByTestId('secret').waitFor()
  await context.close()
})

test('Escape ends no request, and an answer that comes to a closed form shows its secret', async () => {
  const { tab, context, complaints } = await open(
    `${organisation.replace('/organisations', '/org')}?tab=tokens`,
  )
  const drawer = tab.getByRole('dialog')
  for (const [name, closes] of [
    ['escape', () => tab.keyboard.press('Escape')],
    ['button', () => button(drawer, 'Close').click()],
  ]) {
    let release
    const isReleased = new Promise((resolve) => {
      release = resolve
    })
    await answer(tab, async (route) => {
      await isReleased
      await route.continue()
    })
    await button(tab, 'Create token').first().click()
    await drawer.getByLabel('Name').fill(name)
    await submit(drawer, 'Create token').click()
    await submit(drawer, 'Create token').and(drawer.locator('[data-loading]')).waitFor()
    await closes()
    if (name === 'escape') assert.equal(await drawer.count(), 1)
    else await drawer.waitFor({ state: 'detached' })
    release()
    await drawer.getByTestId('secret').waitFor()
    await button(drawer, 'I have stored it').click()
    await drawer.waitFor({ state: 'detached' })
    await tab.unroute('**/api/v1/**')
  }
  assert.deepEqual(complaints, [])
  await context.close()
})

test('Escape in a question closes the question alone, and no drawer loses what was typed', async () => {
  await owner.put(`${at}/groups/typed`, { rules: [{ effect: 'allow', action: 'publish', filter: 'a/#' }] })
  const { tab, context, complaints } = await open(`/b/${broker}/access?tab=groups&edit=typed`)
  const filter = tab.getByRole('textbox', { name: 'Topic filter' })
  await button(tab, 'Delete group').click()
  const question = tab.getByRole('dialog', { name: 'Delete typed?' })
  await question.waitFor()
  await tab.keyboard.press('Escape')
  await question.waitFor({ state: 'detached' })
  assert.equal(await filter.inputValue(), 'a/#')
  await filter.fill('typed/#')
  await tab.keyboard.press('Escape')
  await tab.mouse.click(5, 5)
  assert.equal(await filter.inputValue(), 'typed/#')
  await tab.getByRole('dialog').getByRole('button', { name: 'Close' }).click()
  await filter.waitFor({ state: 'detached' })
  assert.deepEqual(complaints, [])
  await context.close()
})

test('two tabs change the same thing: the second one is told, keeps its input, and may replace the first', async () => {
  await owner.put(`${at}/groups/both`, { rules: [{ effect: 'allow', action: 'publish', filter: 'a/#' }] })
  const { tab, context, complaints } = await open(`/b/${broker}/access?tab=groups&edit=both`)
  const filter = tab.getByRole('textbox', { name: 'Topic filter' })
  await filter.fill('mine/#')
  const theirs = { rules: [{ effect: 'deny', action: 'all', filter: 'theirs/#' }] }
  await owner.put(`${at}/groups/both`, theirs, { 'if-match': '*' })
  // The person comes back to this tab: its lists are loaded again.
  await tab.evaluate(() => window.dispatchEvent(new Event('visibilitychange')))
  await submit(tab, 'Save group').click()
  await tab.getByRole('alert').filter({ hasText: 'It has changed since you opened it' }).waitFor()
  assert.equal(await filter.inputValue(), 'mine/#')
  assert.equal((await owner.get(`${at}/groups/both`)).rules[0].filter, 'theirs/#')
  await button(tab, 'Replace their change').click()
  await until('the change', async () => (await owner.get(`${at}/groups/both`)).rules[0].filter === 'mine/#')

  await owner.post(`${at}/credentials`, { user: 'both' })
  await tab.goto(`${server.url}/b/${broker}/access?edit=both`)
  await tab.getByRole('dialog').getByRole('button', { name: 'Add rule' }).click()
  const etag = { 'if-match': '*' }
  await owner.put(`${at}/credentials/both`, { enabled: false, rules: [] }, etag)
  await submit(tab, 'Save credential').click()
  await tab.getByRole('alert').filter({ hasText: 'It has changed since you opened it' }).waitFor()
  assert.equal((await owner.get(`${at}/credentials/both`)).enabled, false)

  await tab.goto(`${server.url}/b/${broker}/settings`)
  await tab.getByLabel('Subscriptions', { exact: true }).fill('7')
  const now = await fetch(`${server.url}/api/v1${at}`, { headers: { cookie: owner.cookie } })
  await owner.ask(
    'PATCH',
    at,
    { limits: { broker: { connections: 5 } } },
    { 'if-match': now.headers.get('etag') },
  )
  await button(tab, 'Save limits').click()
  await tab.getByRole('alert').filter({ hasText: 'It has changed since you opened it' }).waitFor()
  assert.equal((await owner.get(at)).limits.broker.connections, 5)
  assert.deepEqual(complaints, [])
  await context.close()
})

test('rules that are being written survive a change in another tab, and are saved beside it', async () => {
  const { tab, context, complaints } = await open(`/b/${broker}/access?tab=rules`)
  await button(tab, 'Add rule').click()
  const filter = tab.getByRole('textbox', { name: 'Topic filter' }).last()
  await filter.fill('mine/#')
  const read = await fetch(`${server.url}/api/v1${at}/access`, { headers: { cookie: owner.cookie } })
  const settings = await read.json()
  await owner.put(`${at}/access`, { ...settings, anonymous: true }, { 'if-match': read.headers.get('etag') })
  let isReadAgain = false
  tab.on('response', (response) => {
    isReadAgain ||= response.url().endsWith('/access') && response.ok()
  })
  // Coming back to the tab reads only what is older than some seconds.
  await until('the page to be read again', async () => {
    await tab.evaluate(() => window.dispatchEvent(new Event('visibilitychange')))
    return isReadAgain
  })
  await tab.waitForTimeout(300)
  assert.equal(await filter.inputValue(), 'mine/#')
  const theirs = { effect: 'deny', action: 'all', filter: 'theirs/#' }
  const other = { ...settings, anonymous: true, passwords: false }
  await owner.put(`${at}/access`, { ...other, rules: [theirs] }, { 'if-match': '*' })
  await submit(tab, 'Save rules').click()
  await tab.getByRole('alert').filter({ hasText: 'It has changed since you opened it' }).waitFor()
  assert.deepEqual(
    (await owner.get(`${at}/access`)).rules.map(({ filter }) => filter),
    ['theirs/#'],
  )
  await button(tab, 'Replace their change').click()
  await until('the rules', async () => (await owner.get(`${at}/access`)).rules.at(-1)?.filter === 'mine/#')
  const { anonymous, passwords } = await owner.get(`${at}/access`)
  assert.deepEqual({ anonymous, passwords }, { anonymous: true, passwords: false })
  await owner.put(`${at}/access`, { ...settings, anonymous: true }, { 'if-match': '*' })
  assert.deepEqual(complaints, [])
  await context.close()
})

test('a session that ends in a form: the same person signs in, and the form is as it was; another one finds nothing of it', async () => {
  for (const [name, address] of [
    ['the same', 'ann@example.org'],
    ['another', 'zoe@example.org'],
  ]) {
    if (name === 'another') await new Api(server.url).signUp('Zoe')
    const person = new Api(server.url)
    await person.post('/sign-in', { email: 'ann@example.org', password: PASSWORD })
    const { tab, context, complaints } = await open(`/b/${broker}/webhooks?edit=%2B`, person)
    await tab.getByRole('textbox', { name: 'Name' }).fill(`kept-${name.length}`)
    await tab.getByRole('textbox', { name: 'URL' }).fill('https://example.org/hook')
    await tab.getByRole('combobox', { name: 'Topic filters' }).fill('a/#')
    await tab.keyboard.press('Enter')
    await person.post('/sign-out')
    await submit(tab, 'Save webhook').click()
    const dialog = tab.getByRole('dialog', { name: 'Sign in' })
    await dialog.getByRole('heading', { name: 'Sign in' }).waitFor()
    assert.equal(await dialog.getByLabel('E-mail address').inputValue(), 'ann@example.org')
    await dialog.getByLabel('E-mail address').fill(address)
    await dialog.getByRole('textbox', { name: 'Password' }).fill(PASSWORD)
    await button(dialog, 'Sign in').click()
    await dialog.waitFor({ state: 'detached' })
    if (name === 'the same') {
      assert.equal(await tab.getByRole('textbox', { name: 'URL' }).inputValue(), 'https://example.org/hook')
      await submit(tab, 'Save webhook').click()
      await tab.getByRole('heading', { level: 1, name: /kept-8/ }).waitFor()
    } else {
      await tab.getByText('No broker yet').waitFor()
      assert.equal(new URL(tab.url()).pathname, '/')
    }
    assert.deepEqual(complaints, [])
    await context.close()
  }
})

test('a sign-in in another tab ends the question of this one', async () => {
  const person = new Api(server.url)
  await person.post('/sign-in', { email: 'ann@example.org', password: PASSWORD })
  const { tab, context } = await open(`/b/${broker}/clients`, person)
  await person.post('/sign-out')
  const dialog = tab.getByRole('dialog', { name: 'Sign in' })
  await dialog.waitFor()
  await context.request.post(`${server.url}/api/v1/sign-in`, {
    data: { email: 'ann@example.org', password: PASSWORD },
  })
  await tab.evaluate(() => window.dispatchEvent(new Event('focus')))
  await dialog.waitFor({ state: 'detached' })
  await tab.getByRole('heading', { level: 1, name: 'Clients' }).waitFor()
  await context.close()
})

test('an invitation whose acceptance got no answer is accepted by the second click', async () => {
  const person = new Api(server.url)
  await person.signUp('Willa')
  const { token } = await owner.post(`${organisation}/invitations`, {
    email: 'willa@example.org',
    role: 'viewer',
  })
  const { tab, context, complaints } = await harness.visitor(person)
  await tab.goto(`${server.url}/sign-up#${token}`)
  await tab.route(
    '**/invitations/accept',
    async (route) => {
      await route.fetch()
      await route.abort('connectionreset')
    },
    { times: 1 },
  )
  await tab.getByText('ann@example.org').waitFor()
  await tab.getByText('Viewer', { exact: true }).waitFor()
  await button(tab, 'Accept the invitation').click()
  await tab.getByRole('alert').waitFor()
  await button(tab, 'Accept the invitation').click()
  await tab.getByRole('heading', { level: 1, name: 'Brokers' }).waitFor()
  assert.deepEqual(complaints, [])
  await context.close()
})

test('a tab of somebody who signs out in another one asks for the sign-in, and never becomes a tab of the next person', async () => {
  await new Api(server.url).signUp('Yves')
  const person = new Api(server.url)
  await person.post('/sign-in', { email: 'ann@example.org', password: PASSWORD })
  const { tab, context, complaints } = await open(`/b/${broker}/access?tab=groups&edit=%2B`, person)
  await tab.getByRole('textbox', { name: 'Name' }).fill('of-ann')
  const other = await context.newPage()
  await other.goto(`${server.url}/me`)
  await settled(other)
  await other.getByRole('button', { name: /^Account of/ }).click()
  await other.getByRole('menuitem', { name: 'Sign out' }).click()
  await tab.getByRole('dialog', { name: 'Sign in' }).waitFor()
  await other.getByLabel('E-mail address').fill('yves@example.org')
  await other.getByRole('textbox', { name: 'Password' }).fill(PASSWORD)
  await button(other, 'Sign in').click()
  await tab.getByText('No broker yet').waitFor()
  assert.equal(new URL(tab.url()).pathname, '/')
  assert.equal(await tab.getByText('of-ann').count(), 0)
  assert.deepEqual(complaints, [])
  await context.close()
})

test('a broker that is deleted in another tab: its page says so and leads on', async () => {
  const gone = await owner.post(`${organisation}/brokers`, { display_name: 'Short-lived' })
  const { tab, context, complaints } = await open(`/b/${gone.name}/access`)
  await owner.ask('DELETE', `${organisation}/brokers/${gone.name}`, undefined, { 'if-match': '*' })
  const listed = tab.waitForResponse((response) => response.url().includes(`${organisation}/brokers?`))
  // Data of the last two seconds is not asked for again, so one return to the tab may be too early.
  await until('the page to say so', async () => {
    await tab.evaluate(() => window.dispatchEvent(new Event('visibilitychange')))
    return (await tab.getByRole('heading', { name: 'This broker is gone' }).count()) > 0
  })
  await listed
  await tab.getByRole('link', { name: 'Go to your brokers' }).click()
  await tab.getByRole('heading', { level: 1, name: 'Brokers' }).waitFor()
  assert.equal(await tab.getByText('Short-lived').count(), 0)
  assert.deepEqual(complaints, [])
  await context.close()
})

test('Back while a password is shown does not take it away, and after a broker is created it leads to no second one', async () => {
  const { tab, context, complaints } = await open(`/b/${broker}/access`)
  await button(tab, 'Create credential').click()
  await tab.getByRole('textbox', { name: 'User' }).fill('back-1')
  await submit(tab, 'Create credential').click()
  const secret = await tab.getByTestId('secret').textContent()
  await tab.goBack()
  assert.equal(await tab.getByTestId('secret').textContent(), secret)
  await button(tab, 'I have stored it').click()
  await tab.getByTestId('secret').waitFor({ state: 'detached' })
  await tab.goto(`${server.url}/?all=true`)
  await tab.getByRole('link', { name: 'Create broker' }).first().click()
  await tab.getByRole('textbox', { name: 'Name' }).fill('Once')
  await submit(tab, 'Create broker').click()
  await tab.getByText('Waiting for a device').waitFor()
  await tab.goBack()
  await tab.getByRole('heading', { level: 1, name: 'Brokers' }).waitFor()
  assert.deepEqual(complaints, [])
  await context.close()
})

test('a clock that is wrong by a day: times are those of the server, and a ban of an hour ends after an hour', async () => {
  await harness.device({ clientId: 'punctual' })
  for (const wrong of [-86_400_000, 86_400_000]) {
    const { tab, context, complaints } = await harness.visitor(owner)
    await tab.clock.install({ time: Date.now() + wrong })
    await tab.goto(`${server.url}/b/default/clients?search=punctual`)
    const row = tab.getByRole('row').filter({ hasText: 'punctual' })
    await row.getByText(/^(now|\d+ s ago)$/).waitFor()
    await tab.goto(`${server.url}/b/${broker}/access?tab=bans&edit=%2B`)
    const name = `storm${wrong > 0 ? '-late' : '-early'}`
    await tab.getByRole('textbox', { name: 'Client id' }).fill(name)
    await tab.getByRole('combobox', { name: 'Duration' }).click()
    await tab.getByRole('option', { name: 'one hour' }).click()
    await submit(tab, 'Add ban').click()
    await tab.getByRole('cell', { name: `client id ${name}` }).waitFor()
    const { items } = await owner.get(`${at}/bans`)
    const left = items.find(({ client_id }) => client_id === name).until_ms - Date.now()
    assert.ok(left > 3_400_000 && left < 3_700_000, `the ban lasts ${left} ms`)
    assert.deepEqual(complaints, [])
    await context.close()
  }
})

test('a ban whose reason is changed ends when it was to end', async () => {
  await owner.put(`${at}/bans/forever`, { client_id: 'forever', reason: 'old' })
  const { tab, context } = await open(`/b/${broker}/access?tab=bans&edit=forever`)
  await tab.getByRole('textbox', { name: 'Reason' }).fill('new')
  await submit(tab, 'Save ban').click()
  await tab.getByRole('cell', { name: 'new', exact: true }).waitFor()
  assert.equal((await owner.get(`${at}/bans/forever`)).until_ms ?? null, null)
  await context.close()
})

const STRANGE = [
  '<img src=x onerror=alert(1)>',
  '🏭 Werk 🚰',
  'מפעל שבע',
  '\u202egnorw',
  '"quoted" & <b>bold</b>',
  'a b/c?d#e%2F',
]

test('names are text: HTML, emoji, right to left', async () => {
  const { tab, context, complaints } = await open('/')
  tab.on('dialog', (dialog) => complaints.push(`a dialog: ${dialog.message()}`))
  for (const name of STRANGE) {
    const client = await harness.device({
      clientId: name,
      clean: false,
      properties: { sessionExpiryInterval: 60 },
    })
    const topic = `strange/${name.replaceAll(/[+#]/g, '')}`
    await client.subscribeAsync(topic, { qos: 1 })
    await client.publishAsync(topic, name, { retain: true, qos: 1 })
    await tab.goto(`${server.url}/b/default/clients`)
    const shown = name.replace('\u202e', '\\u{202E}')
    await tab.getByRole('link', { name: shown, exact: true }).click()
    await tab.getByRole('heading', { level: 1, name: shown, exact: true }).waitFor()
    await tab.getByText('Connected', { exact: true }).first().waitFor()
    await tab.goto(`${server.url}/b/default/topics?topic=${encodeURIComponent(topic)}`)
    await tab.getByText('Retained message', { exact: true }).waitFor()
    // The server takes no name of a broker with characters that do not show.
    if (name.includes('\u202e')) continue
    const made = await owner.post(`${organisation}/brokers`, { display_name: name })
    await tab.goto(`${server.url}/b/${made.name}/settings`)
    await tab.getByRole('heading', { level: 1, name: 'Settings' }).waitFor()
    await button(tab, 'Delete broker').click()
    const dialog = tab.getByRole('dialog')
    await dialog.getByRole('textbox').fill(name)
    await button(dialog, 'Delete broker').click()
    await tab.getByRole('heading', { level: 1, name: 'Brokers' }).waitFor()
    assert.equal(await tab.locator('img[src=x]').count(), 0)
    const wide = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth)
    assert.ok(wide <= 0, name)
  }
  assert.deepEqual(complaints, [])
  await context.close()
})

test('the longest topic, a payload of 256 kB and a thousand topics in one level are shown, and cost no second', async () => {
  const { tab, context, complaints } = await open('/b/default/live')
  await tab.getByText(/Connected as console-/).waitFor()
  const client = await harness.device({ clientId: 'large' })
  const long = `long/${'x'.repeat(4_091)}`
  const payload = Buffer.from(Uint8Array.from({ length: 256 * 1024 }, (_, at) => at % 256))
  await client.publishAsync('large/bytes', payload, { qos: 1 })
  await client.publishAsync(long, 'at the end of a long topic', { qos: 1, retain: true })
  await tab.getByText('at the end of a long topic').first().waitFor()
  const row = tab.getByRole('row').filter({ hasText: 'large/bytes' })
  await row.click()
  const drawer = tab.getByRole('dialog', { name: 'Message' })
  await drawer.getByText('256.0 KiB').waitFor()
  await drawer.getByText('03fff0').waitFor()
  await tab.keyboard.press('Escape')
  await drawer.waitFor({ state: 'detached' })
  const download = tab.waitForEvent('download')
  await button(tab, 'Download the messages as JSON lines').click()
  const lines = readFileSync(await (await download).path(), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  const bytes = lines.find(({ topic }) => topic === 'large/bytes')
  assert.ok(Buffer.from(bytes.payload_base64, 'base64').equals(payload))

  for (let from = 0; from < 1000; from += 100) {
    const some = Array.from({ length: 100 }, (_, at) =>
      client.publishAsync(`wide/${from + at}`, 'x', { qos: 1, retain: true }),
    )
    await Promise.all(some)
  }
  await tab.goto(`${server.url}/b/default/topics`)
  await button(tab, 'Open wide').click()
  await tab.getByRole('link', { name: 'wide/0', exact: true }).waitFor()
  const took = await tab.evaluate(async () => {
    const began = performance.now()
    const list = document.querySelector('[role=table] [tabindex]')
    list.scrollTop = list.scrollHeight
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))
    return performance.now() - began
  })
  assert.ok(took < 1_000, `${took} ms`)
  assert.ok((await tab.getByRole('row').count()) < 60)
  await tab.evaluate(() => {
    document.querySelector('[role=table] [tabindex]').scrollTop = 0
  })
  await tab.getByRole('link', { name: /^long\/xxx/ }).click()
  await button(tab, 'Copy the whole topic').click()
  assert.equal(await tab.evaluate(() => navigator.clipboard.readText()), long)
  await tab.getByText('at the end of a long topic').waitFor()
  assert.deepEqual(complaints, [])
  await context.close()
})

test('a console on plain HTTP copies, too', async () => {
  const { tab, context } = await open('/')
  // On 127.0.0.1 the browser has the clipboard's API, which pages on plain HTTP lack.
  await tab.addInitScript(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }))
  await tab.goto(`${server.url}/b/${broker}`)
  await settled(tab)
  const copy = tab.getByRole('button', { name: /^Copy/ }).first()
  const shown = await copy.evaluate((button) => button.parentElement.querySelector('pre').textContent)
  await copy.click()
  await tab.getByRole('button', { name: 'Copied' }).waitFor()
  await tab.evaluate(() => {
    const area = document.body.appendChild(document.createElement('textarea'))
    area.id = 'pasted'
    area.focus()
  })
  await tab.keyboard.press('Control+V')
  assert.equal(await tab.locator('#pasted').inputValue(), shown)
  await context.close()
})

test('a message whose connection is lost says so, and the form can be sent again', async () => {
  const { tab, context } = await open('/b/default/live')
  await tab.getByText(/Connected as console-/).waitFor()
  await tab.getByRole('textbox', { name: 'Topic', exact: true }).fill('lost/1')
  server.process.kill('SIGSTOP')
  await submit(tab, 'Publish').click()
  await submit(tab, 'Publish').and(tab.locator('[data-loading]')).waitFor()
  const ended = server.ended
  server.process.kill('SIGKILL')
  await ended
  await tab
    .getByText(/The message was not published|server may have the message/)
    .first()
    .waitFor()
  await server.start()
  await tab.getByText(/Connected as console-/).waitFor()
  await submit(tab, 'Publish').click()
  await tab.getByText(/^Acknowledged/).waitFor()
  await context.close()
})

test('a limit takes whole numbers alone: a sign or a point would be saved as no limit, or refused', async () => {
  const { tab, context } = await open(`/b/${broker}/settings`)
  const field = tab.getByLabel('Retained messages', { exact: true })
  await field.pressSequentially('-1.5')
  assert.equal(await field.inputValue(), '15')
  await button(tab, 'Save limits').click()
  await until('the limit', async () => (await owner.get(at)).limits.broker.retained_messages === 15)
  await context.close()
})
