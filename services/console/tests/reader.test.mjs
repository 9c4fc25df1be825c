// The console without a mouse and without a screen: names, focus and announcements.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { demo } from './demo.mjs'
import { eachPage, Harness, serious, settled } from './harness.mjs'
import { pagesOf } from './pages.mjs'

let world
let harness
let at

before(async () => {
  world = await demo()
  harness = await Harness.on(world.server)
  at = `/organisations/${world.organisation.split('/').at(-1)}/brokers/${world.tenant}`
})

after(async () => {
  await harness?.close()
  await world?.stop()
})

const open = async (path, options) => {
  const visitor = await harness.visitor(world.api, { reducedMotion: 'reduce', ...options })
  await visitor.tab.goto(new URL(path, world.server.url).href)
  await settled(visitor.tab)
  return visitor
}

/** The element with the focus: its role or tag, and its name. */
const focused = (tab) =>
  tab.evaluate(() => {
    const one = document.activeElement
    return `${one.getAttribute('role') ?? one.tagName.toLowerCase()} ${one.getAttribute('aria-label') ?? one.textContent.slice(0, 40)}`
  })
const focusOn = (tab, what) =>
  tab
    .waitForFunction(
      (what) => {
        const one = document.activeElement
        return `${one.getAttribute('role') ?? one.tagName.toLowerCase()} ${one.getAttribute('aria-label') ?? one.textContent}`.startsWith(
          what,
        )
      },
      what,
      { timeout: 10_000 },
    )
    .catch(async () => assert.fail(`the focus is on "${await focused(tab)}" and not on "${what}"`))

test('the palette is a combobox: the chosen action is its active descendant', async () => {
  const { tab, context, complaints } = await open('/b/default')
  await tab.keyboard.press('Control+k')
  const input = tab.getByRole('dialog', { name: 'Search' }).getByRole('combobox', { name: 'Search' })
  await input.fill('sess')
  const chosen = tab.getByRole('option', { selected: true })
  await chosen.filter({ hasText: 'Sessions' }).waitFor()
  const isSaid = async () =>
    assert.equal(await input.getAttribute('aria-activedescendant'), await chosen.getAttribute('id'))
  await isSaid()
  assert.equal(await input.getAttribute('aria-expanded'), 'true')
  await tab.getByRole('group', { name: 'Look up' }).waitFor()
  const first = await chosen.textContent()
  await tab.keyboard.press('ArrowDown')
  await isSaid()
  assert.notEqual(await chosen.textContent(), first)
  assert.equal(await chosen.count(), 1)
  assert.deepEqual(await serious(tab), [])
  await tab.keyboard.press('Enter')
  await input.waitFor({ state: 'detached' })
  // Outside of a broker there may be nothing.
  await tab.goto(`${world.server.url}/?all=true`)
  await settled(tab)
  await tab.keyboard.press('Control+k')
  const none = tab.getByRole('status').filter({ hasText: 'No result' }).waitFor({ state: 'attached' })
  await tab.getByRole('combobox', { name: 'Search' }).fill('xyzzy')
  await none
  assert.equal(await tab.getByRole('combobox', { name: 'Search' }).getAttribute('aria-expanded'), 'false')
  assert.deepEqual(complaints, [])
  await context.close()
})

/** Names that are typed into the palette, and the addresses that Enter opens. */
const ELSEWHERE = {
  Credentials: /\/access\?tab=credentials$/,
  Groups: /\/access\?tab=groups$/,
  'Rules of all clients': /\/access\?tab=rules$/,
  'Access tester': /\/access\?tab=test$/,
  'Client CAs': /\/access\?tab=certificates$/,
  'JWT issuers': /\/access\?tab=tokens$/,
  Bans: /\/access\?tab=bans$/,
  Authentication: /\/access\?tab=methods$/,
  'Create credential': /\/access\?tab=credentials&edit=/,
  Members: /\/org\/[^/]+\?tab=members$/,
  Invitations: /\/org\/[^/]+\?tab=invitations$/,
  'API tokens': /\/org\/[^/]+\?tab=tokens$/,
  'Audit log': /\/org\/[^/]+\?tab=audit$/,
  'Usage of the organisation': /\/org\/[^/]+\?tab=usage$/,
  'Export the organisation': /\/org\/[^/]+\?tab=export$/,
  'Settings of the organisation': /\/org\/[^/]+\?tab=settings$/,
  'Create organisation': /\/org\/new$/,
  'Create broker': /\/brokers\/new$/,
  'All brokers': /\/\?all=true$/,
  Account: /\/me$/,
}

test('the palette reaches each page: its name is typed, and Enter opens it', async () => {
  const { tab, context, complaints } = await open('/b/default')
  const links = await tab
    .getByRole('navigation')
    .getByRole('link')
    .evaluateAll((all) => all.map((one) => [one.textContent, one.getAttribute('href')]))
  const pages = links.filter(([, path]) => path.startsWith('/b/default'))
  assert.ok(pages.length >= 12, JSON.stringify(links))
  const own = Object.fromEntries(pages.map(([name, path]) => [name, new RegExp(`${path}/?$`)]))
  for (const [name, address] of Object.entries({ ...own, ...ELSEWHERE })) {
    // Some actions are those of a broker.
    if (!tab.url().includes('/b/default')) {
      await tab.goBack()
      await tab.waitForURL(/\/b\/default/)
    }
    await tab.keyboard.press('Control+k')
    const input = tab.getByRole('combobox', { name: 'Search' })
    await input.fill(name)
    await tab
      .getByRole('option', { selected: true })
      .filter({ hasText: name })
      .waitFor()
      .catch(() => assert.fail(`the palette does not choose "${name}"`))
    await tab.keyboard.press('Enter')
    await tab.waitForURL(address).catch(() => assert.fail(`"${name}" opens ${tab.url()}`))
    await input.waitFor({ state: 'detached' })
    await settled(tab)
    // A drawer has the keyboard until it is closed.
    await tab.keyboard.press('Escape')
    await tab.getByRole('dialog').waitFor({ state: 'detached' })
  }
  assert.deepEqual(complaints, [])
  await context.close()
})

test('no two controls of a page are called the same and do something else', async () => {
  const pages = pagesOf({ ...world, admin: world.server.admin })
  const found = []
  const visitors = () => Promise.all([harness.visitor(world.api), harness.visitor()])
  const complaints = await eachPage(pages, visitors, async ({ page, path, visitor: { tab } }) => {
    await tab.goto(new URL(path, world.server.url).href)
    await settled(tab)
    found.push(...(await tab.evaluate(sameNames)).map((name) => `${page}: ${name}`))
    found.push(...(await tab.evaluate(skippedHeadings)).map((name) => `${page}: ${name}`))
    found.push(...(await tab.evaluate(smallTargets)).map((name) => `${page}: ${name}`))
  })
  assert.deepEqual(found, [])
  assert.deepEqual(complaints, [])
})

/** Runs in the page: names that several controls of the page, or of the dialog over it, share. A term explains itself alike everywhere. */
function sameNames() {
  const within = document.querySelector('[aria-modal=true]') ?? document.querySelector('main')
  const isSeen = (one) => one.getClientRects().length > 0 && !one.closest('[aria-hidden=true]')
  const nameOf = (one) => (one.getAttribute('aria-label') ?? one.textContent).trim()
  const places = new Map()
  for (const one of [
    ...within.querySelectorAll('a[href], button:not([tabindex="-1"], [class*=term])'),
  ].filter(isSeen)) {
    const named = places.get(nameOf(one)) ?? new Set()
    named.add(one.getAttribute('href') ?? one)
    places.set(nameOf(one), named)
  }
  return [...places]
    .filter(([, { size }]) => size > 1)
    .map(([name, { size }]) => `${size} are called "${name}"`)
}

/** Runs in the page: headings whose level is more than one below the heading before. */
function skippedHeadings() {
  const seen = [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].filter(
    (one) => one.getClientRects().length > 0,
  )
  return seen
    .map((one, at) => [Number(one.tagName[1]) - Number(seen[at - 1]?.tagName[1] ?? 0), one.textContent])
    .filter(([down]) => down > 1)
    .map(([, text]) => `a level is left out above "${text}"`)
}

/** Runs in the page: controls under 24 × 24 px (WCAG 2.5.8). Links in a sentence may be smaller, and fields whose label is a target. */
function smallTargets() {
  const controls = document.querySelectorAll(
    'main a[href], main button:not([tabindex="-1"]), [role=dialog] button:not([tabindex="-1"]), nav a[href]',
  )
  return [...controls]
    .filter(
      (one) => one.getClientRects().length > 0 && !one.closest('p, li, [data-inherit], [aria-hidden=true]'),
    )
    .map((one) => [one.getBoundingClientRect(), one])
    .filter(([{ width, height }]) => width < 23.5 || height < 23.5)
    .map(
      ([{ width, height }, one]) =>
        `${Math.round(width)} × ${Math.round(height)} px: "${(one.getAttribute('aria-label') ?? one.textContent).slice(0, 40)}"`,
    )
}

test('a deleted row leaves the focus at its list, and a closed dialog at what opened it', async () => {
  for (const user of ['gone-1', 'gone-2']) await world.api.post(`${at}/credentials`, { user })
  const { tab, context, complaints } = await open(`/b/${world.tenant}/access`)
  const row = tab.getByRole('button', { name: 'gone-1' })
  await row.press('Enter')
  const drawer = tab.getByRole('dialog', { name: 'Credential gone-1' })
  await drawer.waitFor()
  await tab.keyboard.press('Escape')
  await drawer.waitFor({ state: 'detached' })
  await focusOn(tab, 'button gone-1')
  await row.press('Enter')
  await drawer.getByRole('button', { name: 'Delete credential' }).press('Enter')
  await tab
    .getByRole('dialog', { name: 'Delete gone-1?' })
    .getByRole('button', { name: 'Delete credential' })
    .press('Enter')
  await drawer.waitFor({ state: 'detached' })
  await row.waitFor({ state: 'detached' })
  await focusOn(tab, 'rowgroup')
  assert.match(await focused(tab), /gone-2/)
  assert.deepEqual(complaints, [])
  await context.close()
})

test('a new secret has the focus in its dialog, and a refused form its button', async () => {
  const { tab, context, complaints } = await open(`/b/${world.tenant}/access?edit=%2B`)
  const drawer = tab.getByRole('dialog')
  await drawer.getByRole('textbox', { name: 'User' }).fill('focus-1')
  const button = drawer.getByRole('button', { name: 'Create credential' })
  await tab.route('**/credentials', (route) => route.fulfill({ status: 503, body: '' }), { times: 1 })
  await button.press('Enter')
  await drawer.getByRole('alert').waitFor()
  await focusOn(tab, 'button Create credential')
  await button.press('Enter')
  await tab.getByTestId('secret').waitFor()
  await focusOn(tab, 'h2 Credential of focus-1')
  assert.deepEqual(complaints, [])
  await context.close()
})

test('a step of the sign-in and a page that opens are announced', async () => {
  const { tab, context } = await harness.visitor()
  await tab.goto(`${world.server.url}/forgot-password`)
  await settled(tab)
  const heard = tab
    .getByRole('status')
    .filter({ hasText: /^Sign in$/ })
    .waitFor({ state: 'attached' })
  await tab.getByRole('link', { name: 'Back to sign in' }).press('Enter')
  await heard
  await focusOn(tab, 'h1 Sign in')
  await context.close()
})

test('200 % zoom and 320 px: every page is read without scrolling sideways', async () => {
  const pages = pagesOf({ ...world, admin: world.server.admin })
  const found = []
  const small = { viewport: { width: 320, height: 512 }, reducedMotion: 'reduce' }
  const visitors = () => Promise.all([harness.visitor(world.api, small), harness.visitor(undefined, small)])
  const complaints = await eachPage(pages, visitors, async ({ page, path, visitor: { tab } }) => {
    await tab.goto(new URL(path, world.server.url).href)
    await settled(tab)
    const wide = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth)
    if (wide > 0) found.push(`${page} is ${wide} px too wide`)
    const moving = await tab.evaluate(
      () => document.getAnimations().filter(({ effect }) => effect.getComputedTiming().duration > 1).length,
    )
    if (moving > 0) found.push(`${page} moves although motion is reduced`)
  })
  assert.deepEqual(found, [])
  assert.deepEqual(complaints, [])
})
