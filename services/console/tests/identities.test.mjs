// Accounts of a provider: connected after a confirmation, listed, removed, and used to accept an invitation.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Harness, serious, settled } from './harness.mjs'
import { IdentityProvider } from './provider.mjs'
import { Api, PASSWORD, Server } from './server.mjs'
import { Authenticator } from './totp.mjs'

let provider
let server
let harness
let owner

before(async () => {
  provider = await IdentityProvider.start()
  server = await Server.make((url) => ({
    'sign-up': 'anybody',
    'public-url': url,
    'oidc-issuer': provider.url,
    'oidc-client-id': 'millrace',
    'oidc-name': 'Plant login',
  }))
  harness = await Harness.on(server)
  owner = new Api(server.url)
  await owner.signUp('Ann', server.link('/sign-up'))
})

after(async () => {
  await harness?.close()
  await server?.stop()
  provider?.stop()
})

const click = (place, name) => place.getByRole('button', { name, exact: true }).click()
const identities = async () => (await owner.get('/me/identities')).items
const isAt = (path) => (url) => `${url.pathname}${url.search}` === path

test('an account of the provider is connected once its person has confirmed it, and removed again', async () => {
  provider.account = { sub: 'ann-7', email: 'ann@plant.example', name: 'Ann' }
  const { tab, context, complaints } = await harness.visitor(owner)
  await tab.goto(`${server.url}/me`)
  await tab.getByText('No identity yet').waitFor()

  await click(tab, 'Connect Plant login')
  await tab.waitForURL(isAt('/me?identity=pending'))
  await tab.getByRole('heading', { name: 'Connect Plant login?' }).waitFor()
  await tab.getByText('ann@plant.example').waitFor()
  await tab.getByText(`Plant login (${provider.url})`).waitFor()
  for (const colorScheme of ['light', 'dark']) {
    await tab.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    await tab.locator(`html[data-mantine-color-scheme=${colorScheme}]`).waitFor()
    await settled(tab)
    assert.deepEqual(await serious(tab), [])
  }
  await click(tab, 'Cancel')
  await tab.waitForURL(isAt('/me'))
  assert.deepEqual(await identities(), [])

  await click(tab, 'Connect Plant login')
  await click(tab, 'Connect this account')
  await tab.waitForURL(isAt('/me'))
  await tab.getByRole('row', { name: /ann@plant\.example/ }).waitFor()
  assert.deepEqual(
    (await identities()).map(({ subject }) => subject),
    ['ann-7'],
  )

  await click(tab, 'Remove ann@plant.example')
  const question = tab.getByRole('dialog', { name: 'Remove ann@plant.example?' })
  await question.getByText(/You can no longer sign in here with ann@plant\.example/).waitFor()
  await click(question, 'Remove identity')
  await tab.getByText('No identity yet').waitFor()
  assert.deepEqual(await identities(), [])
  assert.deepEqual(complaints, [])
  await context.close()
})

test('when the sign-in is old, the page asks for the password and the code before the journey', async () => {
  const person = new Api(server.url)
  await person.signUp('Dora')
  const { secret } = await person.post('/me/second-factor', { password: PASSWORD })
  const app = new Authenticator(secret)
  await person.post('/me/second-factor/confirm', { code: await app.next() })
  provider.account = { sub: 'dora-1', email: 'dora@plant.example', name: 'Dora' }
  const { tab, context, complaints } = await harness.visitor(person)
  // The answer to a request without a proof is that of a sign-in older than ten minutes; the server checks every proof.
  await tab.route('**/api/v1/me/identities', async (route) => {
    const request = route.request()
    if (request.method() !== 'POST' || request.postDataJSON().password) return route.continue()
    await route.fulfill({
      status: 422,
      contentType: 'application/problem+json',
      body: JSON.stringify({
        type: 'urn:millrace:problem:invalid',
        title: 'Unprocessable Entity',
        status: 422,
        detail: 'password is missing',
        fields: [{ field: 'password', detail: 'is missing' }],
      }),
    })
  })
  await tab.goto(`${server.url}/me`)
  await click(tab, 'Connect Plant login')
  const question = tab.getByRole('dialog', { name: 'Confirm that it is you' })
  const password = question.getByRole('textbox', { name: 'Your password' })
  const code = question.getByLabel('Code', { exact: true })
  await code.waitFor()
  for (const colorScheme of ['light', 'dark']) {
    await tab.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    await tab.locator(`html[data-mantine-color-scheme=${colorScheme}]`).waitFor()
    assert.deepEqual(await serious(tab), [])
  }
  await password.fill('not the password of Dora')
  await code.fill('000000')
  await click(question, 'Continue to Plant login')
  await question.getByRole('alert').waitFor()
  await password.fill(PASSWORD)
  await code.fill(await app.next())
  await click(question, 'Continue to Plant login')
  await tab.waitForURL(isAt('/me?identity=pending'))
  await click(tab, 'Connect this account')
  await tab.getByRole('row', { name: /dora@plant\.example/ }).waitFor()
  assert.deepEqual(complaints, [])
  await context.close()
})

test('without an account that waits, the page says so', async () => {
  const { tab, context } = await harness.visitor(owner)
  await tab.goto(`${server.url}/me?identity=pending`)
  await tab.getByText('No account waits for your confirmation').waitFor()
  await click(tab, 'Close')
  await tab.waitForURL(isAt('/me'))
  await context.close()
})

test('somebody who is invited joins with the provider, and cannot remove the only way to sign in', async () => {
  const { id } = (await owner.get('/me')).organisations[0]
  const email = 'bob@example.org'
  const { token } = await owner.post(`/organisations/${id}/invitations`, { email, role: 'viewer' })
  provider.account = { sub: 'bob-1', email, name: 'Bob' }
  const { tab, context, complaints } = await harness.visitor()
  await tab.goto(`${server.url}/sign-up#${token}`)
  await click(tab, 'Continue with Plant login')
  await tab.waitForURL((url) => url.origin === server.url && !url.pathname.startsWith('/sign-up'))
  await tab.goto(`${server.url}/me`)
  await click(tab, `Remove ${email}`)
  const question = tab.getByRole('dialog', { name: `Remove ${email}?` })
  await click(question, 'Remove identity')
  await question.getByText(/You have no password and no other identity/).waitFor()
  const { items } = await owner.get(`/organisations/${id}/members`)
  assert.ok(items.some(({ name, role }) => name === 'Bob' && role === 'viewer'))
  assert.deepEqual(complaints, [])
  await context.close()
})

test('a session that ends in a form: the provider signs in from another tab, and the form is as it was', async () => {
  provider.account = { sub: 'eve-1', email: 'eve@example.org', name: 'Eve' }
  const { tab, context, complaints } = await harness.visitor()
  await tab.goto(`${server.url}/sign-in?next=%2Fme`)
  await tab.getByRole('link', { name: 'Sign in with Plant login' }).click()
  await tab.waitForURL(isAt('/me'))
  const name = tab.getByRole('textbox', { name: 'Name', exact: true })
  await name.fill('Eve Other')
  await context.clearCookies()
  await click(tab, 'Change name')
  const dialog = tab.getByRole('dialog', { name: 'Sign in' })
  const opened = context.waitForEvent('page')
  await dialog.getByRole('link', { name: 'Sign in with Plant login' }).click()
  await settled(await opened)
  await dialog.waitFor({ state: 'detached' })
  assert.equal(await name.inputValue(), 'Eve Other')
  assert.deepEqual(complaints, [])
  await context.close()
})
