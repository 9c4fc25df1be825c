// Passkeys, with Chromium's virtual authenticator: added, used to sign in both ways, renamed and removed.

import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'
import { Harness, serious, settled } from './harness.mjs'
import { Api, PASSWORD, Server } from './server.mjs'

let server
let harness
let owner
let url

// Browsers bind passkeys to a name, so the pages are those of localhost.
beforeEach(async () => {
  server = await Server.make((at) => ({ 'public-url': at.replace('127.0.0.1', 'localhost') }))
  url = server.url.replace('127.0.0.1', 'localhost')
  harness = await Harness.on(server)
  owner = new Api(server.url)
  await owner.signUp('Ann', server.link('/sign-up'))
})

afterEach(async () => {
  await harness?.close()
  await server?.stop()
})

const click = (place, name) => place.getByRole('button', { name, exact: true }).click()
const panel = (tab, title) =>
  tab.locator('section').filter({ has: tab.getByRole('heading', { name: title, exact: true }) })

/** A built-in authenticator that verifies its user. It belongs to the tab. */
async function authenticator(tab, options = {}) {
  const devtools = await tab.context().newCDPSession(tab)
  await devtools.send('WebAuthn.enable')
  const { authenticatorId } = await devtools.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
      ...options,
    },
  })
  return { devtools, authenticatorId }
}

async function axe(tab) {
  for (const colorScheme of ['light', 'dark']) {
    await tab.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    await tab.locator(`html[data-mantine-color-scheme=${colorScheme}]`).waitFor()
    await settled(tab)
    assert.deepEqual(await serious(tab), [])
  }
}

async function withPassword(tab) {
  await tab.getByLabel('E-mail address').fill(owner.email)
  await tab.getByLabel('Password', { exact: true }).fill(PASSWORD)
  await click(tab, 'Sign in')
}

const isIn = (tab) => tab.waitForURL((at) => at.pathname !== '/sign-in')

async function signOut(tab) {
  await tab.context().clearCookies()
  await tab.goto(`${url}/sign-in`)
}

/** Keeps pictures of the page where SHOTS names a folder. */
async function picture(tab, name) {
  if (!process.env.SHOTS) return
  for (const colorScheme of ['light', 'dark']) {
    for (const width of [1440, 390]) {
      await tab.setViewportSize({ width, height: 900 })
      await tab.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
      await settled(tab)
      await tab.screenshot({ path: `${process.env.SHOTS}/${name}-${colorScheme}-${width}.png` })
    }
  }
  await tab.setViewportSize({ width: 1280, height: 900 })
}

test('a passkey is added, signs in with and without the password, is renamed and removed', async () => {
  const { tab, context, complaints } = await harness.visitor(undefined)
  await authenticator(tab)
  await tab.goto(`${url}/sign-in`)
  await withPassword(tab)
  await isIn(tab)

  await tab.goto(`${url}/me`)
  const passkeys = panel(tab, 'Passkeys')
  await passkeys.getByText('No passkey yet').waitFor()
  await click(passkeys, 'Add passkey')
  await passkeys.getByLabel('Name of the passkey').fill('Laptop')
  await passkeys.getByRole('textbox', { name: 'Your password' }).fill('not the password')
  await axe(tab)
  await picture(tab, 'add')
  const form = passkeys.locator('form')
  await click(form, 'Add passkey')
  await passkeys.getByRole('alert').waitFor()
  await passkeys.getByRole('textbox', { name: 'Your password' }).fill(PASSWORD)
  await click(form, 'Add passkey')
  const codes = (await passkeys.getByTestId('secret').textContent()).split('\n')
  assert.equal(codes.length, 10)
  await axe(tab)
  await click(passkeys, 'I have stored them')
  await passkeys.getByRole('button', { name: 'Remove Laptop' }).waitFor()
  await panel(tab, 'Second factor').getByText('10 codes left').waitFor()
  await passkeys.scrollIntoViewIfNeeded()
  await picture(tab, 'list')

  await signOut(tab)
  await axe(tab)
  await picture(tab, 'sign-in')
  await click(tab, 'Sign in with a passkey')
  await isIn(tab)

  await signOut(tab)
  await withPassword(tab)
  await tab.getByRole('heading', { name: 'Use your passkey' }).waitFor()
  await axe(tab)
  await picture(tab, 'second-step')
  await click(tab, 'Use passkey')
  await isIn(tab)

  await tab.goto(`${url}/me`)
  await click(passkeys, 'Rename Laptop')
  const rename = tab.getByRole('dialog')
  await rename.getByLabel('Name of the passkey').fill('Work laptop')
  await click(rename, 'Rename passkey')
  await click(passkeys, 'Remove Work laptop')
  const question = tab.getByRole('dialog')
  await question.getByText(/your only second factor/).waitFor()
  await axe(tab)
  await question.getByRole('textbox', { name: 'Your password' }).fill(PASSWORD)
  await click(question, 'Remove passkey')
  await passkeys.getByText('No passkey yet').waitFor()

  await signOut(tab)
  await withPassword(tab)
  await isIn(tab)
  assert.deepEqual(complaints, [])
  await context.close()
})

test('the first recovery codes are not lost when the answer with them is', async () => {
  const { tab, context, complaints } = await harness.visitor(undefined)
  const { devtools, authenticatorId } = await authenticator(tab)
  await tab.goto(`${url}/sign-in`)
  await withPassword(tab)
  await isIn(tab)
  await tab.goto(`${url}/me`)
  // The server is busy at first. The second request does not reach it. The third does, and its answer is lost.
  let attempts = 0
  const busy = {
    status: 429,
    headers: { 'content-type': 'application/problem+json', 'retry-after': '1' },
    body: JSON.stringify({ type: 'about:blank', title: 'Busy', status: 429, detail: 'too many requests' }),
  }
  await tab.route('**/api/v1/me/passkeys', async (route) => {
    if (route.request().method() !== 'POST') return route.continue()
    attempts += 1
    if (attempts === 1) return route.fulfill(busy)
    if (attempts > 3) return route.continue()
    if (attempts === 3) assert.ok((await route.fetch()).ok())
    return route.abort('connectionreset')
  })
  const passkeys = panel(tab, 'Passkeys')
  await click(passkeys, 'Add passkey')
  await passkeys.getByLabel('Name of the passkey').fill('Laptop')
  await passkeys.getByRole('textbox', { name: 'Your password' }).fill(PASSWORD)
  await click(passkeys.locator('form'), 'Add passkey')
  for (const attempt of [1, 2, 3]) {
    const said = attempt === 1 ? 'the server has not added it' : 'the answer of the server did not arrive'
    await passkeys.getByText(said).waitFor()
    await passkeys.getByRole('button', { name: 'Send again' }).and(passkeys.locator(':enabled')).waitFor()
    assert.equal(attempts, attempt)
    if (attempt === 1) {
      await axe(tab)
      await picture(tab, 'not-added')
    }
    await click(passkeys, 'Send again')
  }
  const codes = (await passkeys.getByTestId('secret').textContent()).split('\n')
  assert.equal(codes.length, 10)
  await click(passkeys, 'I have stored them')
  await passkeys.getByRole('button', { name: 'Remove Laptop' }).waitFor()
  assert.equal(await passkeys.getByRole('button', { name: /^Remove / }).count(), 1)
  const { credentials } = await devtools.send('WebAuthn.getCredentials', { authenticatorId })
  assert.equal(credentials.length, 1)
  await panel(tab, 'Second factor').getByText('10 codes left').waitFor()
  assert.deepEqual(complaints, [])
  await context.close()
})

test('a passkey that is cancelled or unknown says so, and a recovery code stands in for it', async () => {
  const { tab, context } = await harness.visitor(undefined)
  const { devtools, authenticatorId } = await authenticator(tab)
  await tab.goto(`${url}/sign-in`)
  await withPassword(tab)
  await isIn(tab)
  await tab.goto(`${url}/me`)
  const passkeys = panel(tab, 'Passkeys')
  await click(passkeys, 'Add passkey')
  await passkeys.getByRole('textbox', { name: 'Your password' }).fill(PASSWORD)
  await click(passkeys.locator('form'), 'Add passkey')
  const [code] = (await passkeys.getByTestId('secret').textContent()).split('\n')
  // The authenticator has lost the passkey.
  await devtools.send('WebAuthn.clearCredentials', { authenticatorId })
  await signOut(tab)
  await withPassword(tab)
  await click(tab, 'Use passkey')
  await tab.getByRole('alert').waitFor()
  await click(tab, 'Use a code')
  await click(tab, 'Use a recovery code')
  await tab.getByLabel('Recovery code').fill(code)
  await click(tab, 'Sign in')
  await isIn(tab)
  await context.close()
})

test('a page at an address instead of the name says where passkeys work', async () => {
  const { tab, context } = await harness.visitor(owner)
  await tab.goto(`${server.url}/me`)
  const passkeys = panel(tab, 'Passkeys')
  await passkeys.getByRole('link', { name: url }).waitFor()
  assert.equal(await passkeys.getByRole('button', { name: 'Add passkey' }).count(), 0)
  await axe(tab)
  await context.close()
})
