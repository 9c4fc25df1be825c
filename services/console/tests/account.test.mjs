// The account: second factor, forgotten password, another e-mail address, and the end of it.

import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { afterEach, beforeEach, test } from 'node:test'
import { Harness, serious, settled } from './harness.mjs'
import { MailServer } from './mail.mjs'
import { Api, PASSWORD, Server } from './server.mjs'
import { Authenticator } from './totp.mjs'

let mail
let server
let harness
let owner

// Each test has a server of its own: a server takes 20 uses of a password from one address, and then one every 3 s.
beforeEach(async () => {
  mail = await MailServer.start()
  server = await Server.make((url) => ({
    'public-url': url,
    'smtp-host': '127.0.0.1',
    'smtp-port': mail.port,
    'smtp-tls': 'off',
    'smtp-from': 'millrace@example.org',
  }))
  harness = await Harness.on(server)
  owner = new Api(server.url)
  await owner.signUp('Ann', server.link('/sign-up'))
})

afterEach(async () => {
  await harness?.close()
  await server?.stop()
  mail?.stop()
})

const click = (place, name) => place.getByRole('button', { name, exact: true }).click()
const panel = (tab, title) =>
  tab.locator('section').filter({ has: tab.getByRole('heading', { name: title, exact: true }) })

/** Somebody with an account, in an organisation that Ann has invited them to. */
async function member(name) {
  const { organisations } = await owner.get('/me')
  const email = `${name.toLowerCase()}@example.org`
  await owner.post(`/organisations/${organisations[0].id}/invitations`, { email, role: 'operator' })
  const api = new Api(server.url)
  const token = new URL(await mail.link(email, '/sign-up')).hash.slice(1)
  await api.post('/sign-up', { email, password: PASSWORD, name, token })
  const confirmation = new URL(await mail.link(email, '/confirm')).hash.slice(1)
  await api.post('/sign-up/confirm', { token: confirmation, password: PASSWORD })
  api.email = email
  return api
}

async function axe(tab) {
  for (const colorScheme of ['light', 'dark']) {
    await tab.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    await tab.locator(`html[data-mantine-color-scheme=${colorScheme}]`).waitFor()
    await settled(tab)
    assert.deepEqual(await serious(tab), [])
  }
}

async function signIn(tab, email, password) {
  await tab.goto(`${server.url}/sign-in`)
  await tab.getByLabel('E-mail address').fill(email)
  await tab.getByLabel('Password', { exact: true }).fill(password)
  await click(tab, 'Sign in')
}

test('a second factor is set up, asked for, replaced by a recovery code, and turned off', async () => {
  const api = await member('Bea')
  const { tab, context, complaints } = await harness.visitor(api)
  await tab.goto(`${server.url}/me`)
  const factor = panel(tab, 'Second factor')
  await factor.getByRole('textbox', { name: 'Your password' }).fill(PASSWORD)
  await click(factor, 'Set up second factor')
  await factor.getByRole('img', { name: /^QR code/ }).waitFor()
  const secret = await factor.locator('pre').textContent()
  const app = new Authenticator(secret)
  await axe(tab)

  await factor.getByLabel('Code', { exact: true }).fill('000000')
  await click(factor, 'Turn on second factor')
  await factor.getByRole('alert').waitFor()
  await factor.getByLabel('Code', { exact: true }).fill(await app.next())
  await click(factor, 'Turn on second factor')
  const codes = (await factor.getByTestId('secret').textContent()).split('\n')
  assert.equal(codes.length, 10)
  await axe(tab)
  await click(factor, 'Copy')
  assert.equal(await tab.evaluate(() => navigator.clipboard.readText()), codes.join('\n'))
  const download = tab.waitForEvent('download')
  await factor.getByRole('link', { name: 'Download' }).click()
  assert.equal(await readFile(await (await download).path(), 'utf8'), `${codes.join('\n')}\n`)
  await click(factor, 'I have stored them')
  await factor.getByText('10 codes left').waitFor()
  assert.equal(await tab.getByText(codes[0]).count(), 0, 'the codes are shown once')

  const guest = await harness.visitor(undefined)
  await signIn(guest.tab, api.email, PASSWORD)
  const code = guest.tab.getByLabel('Code', { exact: true })
  assert.equal(await code.getAttribute('autocomplete'), 'one-time-code')
  await axe(guest.tab)
  await code.fill('000000')
  await click(guest.tab, 'Sign in')
  await guest.tab.getByRole('alert').waitFor()
  await code.fill(await app.next())
  await click(guest.tab, 'Sign in')
  await guest.tab.waitForURL((url) => url.pathname !== '/sign-in')
  assert.deepEqual(guest.complaints, [])
  await guest.context.close()

  const other = await harness.visitor(undefined)
  await signIn(other.tab, api.email, PASSWORD)
  await click(other.tab, 'Use a recovery code')
  await other.tab.getByLabel('Recovery code').fill(codes[0])
  await axe(other.tab)
  await click(other.tab, 'Sign in')
  await other.tab.waitForURL((url) => url.pathname !== '/sign-in')
  await other.context.close()

  await tab.reload()
  await factor.getByText('9 codes left').waitFor()
  await click(factor, 'New recovery codes')
  await factor.getByRole('textbox', { name: 'Your password' }).fill(PASSWORD)
  await factor.getByLabel('Code', { exact: true }).fill(codes[1])
  await axe(tab)
  await click(factor, 'Create new recovery codes')
  const renewed = (await factor.getByTestId('secret').textContent()).split('\n')
  assert.equal(renewed.length, 10)
  assert.ok(!renewed.includes(codes[2]))
  await click(factor, 'I have stored them')
  await factor.getByText('10 codes left').waitFor()

  await click(factor, 'Turn off')
  await factor.getByRole('textbox', { name: 'Your password' }).fill(PASSWORD)
  await factor.getByLabel('Code', { exact: true }).fill(renewed[0])
  await click(factor, 'Turn off authenticator app')
  await factor.getByRole('button', { name: 'Set up second factor' }).waitFor()
  assert.deepEqual(complaints, [])
  await context.close()
})

/** Lets the server do what is asked at `path`, and loses its answer, until `end` is called. */
async function losing(tab, path) {
  const at = (url) => url.pathname === `/api/v1${path}`
  let lost = 0
  await tab.route(at, async (route) => {
    await route.fetch()
    lost += 1
    await route.abort('connectionreset')
  })
  return async () => {
    await tab.unroute(at)
    return lost
  }
}

test('recovery codes whose answer was lost are shown after a repetition', async () => {
  const api = await member('Fay')
  const { tab, context } = await harness.visitor(api)
  await tab.goto(`${server.url}/me`)
  const factor = panel(tab, 'Second factor')
  await factor.getByRole('textbox', { name: 'Your password' }).fill(PASSWORD)
  await click(factor, 'Set up second factor')
  const app = new Authenticator(await factor.locator('pre').textContent())
  const shown = async (button, path, fill) => {
    const end = await losing(tab, path)
    await fill()
    await click(factor, button)
    await factor.getByText('The server does not answer.').waitFor()
    assert.ok((await end()) > 0)
    // The code that the app shows meanwhile asks for the same codes.
    await factor.getByLabel('Code', { exact: true }).fill('000000')
    await click(factor, button)
    const codes = (await factor.getByTestId('secret').textContent()).split('\n')
    await click(factor, 'I have stored them')
    await factor.getByText('10 codes left').waitFor()
    return codes
  }
  const codes = await shown('Turn on second factor', '/me/second-factor/confirm', async () => {
    await factor.getByLabel('Code', { exact: true }).fill(await app.next())
  })
  await click(factor, 'New recovery codes')
  const renewed = await shown('Create new recovery codes', '/me/second-factor/recovery-codes', async () => {
    await factor.getByRole('textbox', { name: 'Your password' }).fill(PASSWORD)
    await factor.getByLabel('Code', { exact: true }).fill(codes[0])
  })
  // They are the ones in force.
  const guest = await harness.visitor(undefined)
  await signIn(guest.tab, api.email, PASSWORD)
  await click(guest.tab, 'Use a recovery code')
  await guest.tab.getByLabel('Recovery code').fill(renewed[0])
  await click(guest.tab, 'Sign in')
  await guest.tab.waitForURL((url) => url.pathname !== '/sign-in')
  await guest.context.close()
  await context.close()
})

test('a forgotten password is reset with the link of a mail, whose token leaves the address bar', async () => {
  const api = await member('Cem')
  const { tab, context, complaints } = await harness.visitor(undefined)
  await tab.goto(`${server.url}/sign-in`)
  await tab.getByRole('link', { name: 'Forgot password?' }).click()
  // The page before has a heading, too.
  await tab.getByRole('heading', { name: 'Forgot your password?' }).waitFor()
  await axe(tab)
  await tab.getByLabel('E-mail address').fill(api.email)
  await click(tab, 'Send link')
  await tab.getByRole('heading', { name: 'Open the link in your mail' }).waitFor()

  await tab.goto(await mail.link(api.email, '/reset-password'))
  await tab.getByRole('heading', { name: 'Choose a new password' }).waitFor()
  assert.equal(tab.url(), `${server.url}/reset-password`)
  await axe(tab)
  await tab.getByRole('textbox', { name: 'New password' }).fill('short')
  await click(tab, 'Change password')
  // The server's answer, and not the description, which says "at least 15 characters" from the beginning.
  await tab.getByText(/must have at least 15/i).waitFor()
  const next = `${PASSWORD}, and a new one`
  await tab.getByRole('textbox', { name: 'New password' }).fill(next)
  await click(tab, 'Change password')
  await tab.getByRole('heading', { name: 'Your password was changed' }).waitFor()
  await axe(tab)
  await tab.getByRole('link', { name: 'Sign in' }).click()
  await signIn(tab, api.email, next)
  await tab.waitForURL((url) => url.pathname !== '/sign-in')
  await assert.rejects(api.get('/me'), /401/)

  // The link has been used.
  // This tab shows the page of the link already, so the browser changes the fragment alone.
  await tab.goto(`${server.url}/reset-password`)
  await tab.getByRole('heading', { name: 'Open the link again' }).waitFor()
  await tab.goto(await mail.link(api.email, '/reset-password'))
  await tab.getByRole('textbox', { name: 'New password' }).fill(`${next} again`)
  await click(tab, 'Change password')
  await tab.getByRole('alert').waitFor()
  await tab.getByRole('link', { name: 'Ask for a new link' }).waitFor()
  assert.deepEqual(complaints, [])
  await context.close()
})

test('a sign-up is confirmed with the link of its mail, on a page of the console', async () => {
  const { organisations } = await owner.get('/me')
  const email = 'eli@example.org'
  await owner.post(`/organisations/${organisations[0].id}/invitations`, { email, role: 'viewer' })
  const { tab, context, complaints } = await harness.visitor(undefined, {
    viewport: { width: 390, height: 844 },
  })
  await tab.goto(await mail.link(email, '/sign-up'))
  await tab.getByLabel('Your name').fill('Eli')
  await tab.getByLabel('E-mail address').fill(email)
  await tab.getByRole('textbox', { name: 'Password' }).fill(PASSWORD)
  await click(tab, 'Create account')
  await tab.getByText(`It was sent to ${email}.`).waitFor()

  await tab.goto(await mail.link(email, '/confirm'))
  await tab.getByRole('heading', { name: 'Confirm your e-mail address' }).waitFor()
  assert.equal(tab.url(), `${server.url}/confirm`)
  await axe(tab)
  await tab.getByRole('textbox', { name: 'Password' }).fill('another sentence than before')
  await click(tab, 'Create account')
  await tab.getByRole('alert').waitFor()
  await axe(tab)
  await tab.getByRole('textbox', { name: 'Password' }).fill(PASSWORD)
  await click(tab, 'Create account')
  await tab
    .getByRole('button', { name: /^Broker: / })
    .first()
    .waitFor({ state: 'attached' })
  await tab.waitForURL((url) => url.pathname !== '/confirm')
  assert.deepEqual(complaints, [])
  await context.close()
})

test('another e-mail address counts once the link in the mail to it is opened, after a sign-in', async () => {
  const api = await member('Dea')
  const { tab, context } = await harness.visitor(api)
  await tab.goto(`${server.url}/me`)
  const address = panel(tab, 'E-mail address')
  await address.getByLabel('New e-mail address').fill('dea@elsewhere.example')
  await address.getByRole('textbox', { name: 'Your password' }).fill(PASSWORD)
  await click(address, 'Send link')
  await address.getByText('Open the link that was sent to dea@elsewhere.example').waitFor()
  await axe(tab)
  const link = await mail.link('dea@elsewhere.example', '/confirm-address')
  await context.close()

  const guest = await harness.visitor(undefined)
  await guest.tab.goto(link)
  await guest.tab.getByRole('heading', { name: 'Sign in first' }).waitFor()
  assert.equal(guest.tab.url(), `${server.url}/confirm-address`)
  await axe(guest.tab)
  await guest.tab.getByRole('link', { name: 'Sign in' }).click()
  await guest.tab.getByLabel('E-mail address').fill(api.email)
  await guest.tab.getByLabel('Password', { exact: true }).fill(PASSWORD)
  await click(guest.tab, 'Sign in')
  await guest.tab.getByRole('heading', { name: 'Confirm your address' }).waitFor()
  await axe(guest.tab)
  await click(guest.tab, 'Confirm new address')
  await guest.tab.getByText('From now on you sign in with dea@elsewhere.example.').waitFor()
  assert.deepEqual(guest.complaints, [])
  await guest.context.close()
})

test('an account is deleted after a question that names what is lost; the last owner is told why not', async () => {
  const api = await member('Eli')
  const { tab, context, complaints } = await harness.visitor(api)
  await tab.goto(`${server.url}/me`)
  await click(panel(tab, 'Delete account'), 'Delete account')
  const question = tab.getByRole('dialog')
  await question.getByText(/You leave 1 organisation/).waitFor()
  assert.ok(await question.getByRole('button', { name: 'Delete account' }).isDisabled())
  await axe(tab)
  await question.getByLabel(/^Type eli@example.org/).fill('eli@example.org')
  await question.getByRole('textbox', { name: 'Your password' }).fill(PASSWORD)
  await click(question, 'Delete account')
  await tab.getByRole('heading', { name: 'Sign in' }).waitFor()
  await signIn(tab, 'eli@example.org', PASSWORD)
  await tab.getByRole('alert').waitFor()
  assert.deepEqual(complaints, [])
  await context.close()

  const last = await harness.visitor(owner)
  await last.tab.goto(`${server.url}/me`)
  await click(panel(last.tab, 'Delete account'), 'Delete account')
  const asked = last.tab.getByRole('dialog')
  await asked.getByLabel(/^Type ann@example.org/).fill('ann@example.org')
  await asked.getByRole('textbox', { name: 'Your password' }).fill(PASSWORD)
  await click(asked, 'Delete account')
  await asked.getByText(/You are the last owner of/).waitFor()
  await last.context.close()
})
