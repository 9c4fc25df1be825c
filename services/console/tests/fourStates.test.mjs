// Each page while its data loads, after its requests ended without an answer, while no server answers, and without anything to show.
// The server and its answers are real: a gate on loopback only holds connections back or closes them (gate.mjs).
//
//   PICTURES=folder draws each state; READERS=1440-light,390-dark chooses sizes and themes; PAGES=webhook,usage looks at these alone.

import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { demo } from './demo.mjs'
import { Gate } from './gate.mjs'
import { eachPage, Harness, serious, settled } from './harness.mjs'
import { pagesOf } from './pages.mjs'
import { Api } from './server.mjs'

const PICTURES = process.env.PICTURES
const ONLY = process.env.PAGES?.split(',')
const SIZES = { 1440: { width: 1440, height: 900 }, 390: { width: 390, height: 844 } }
const READERS = (process.env.READERS ?? '1440-light,390-dark').split(',')
/** Requests of the frame around each page: the session, the brokers, the ways to sign in, the pod. */
const FRAME = /^\/(api\/v1\/(me|sign-in\/ways|organisations\/[^/]+\/brokers(\/[^/]+)?)|v1\/operator\/pod)$/
const DATA = /^\/((api\/v1|v1\/operator)\/|metrics$)/
const isData = (pathname) => DATA.test(pathname) && !FRAME.test(pathname)
/** These pages wait for a device in any case. */
const WAITING = new Set(['connect', 'connect-tenant', 'live'])
/** Its data comes once somebody starts the trace. */
const NOT_STARTED = 'client-trace'
/** Longer than a page takes to show that it loads (300 ms). */
const LOOK_MS = 700
const AWAY = /^The server stopped answering/

let world
let harness

before(async () => {
  if (PICTURES) mkdirSync(PICTURES, { recursive: true })
  world = await demo({ 'sign-up': 'anybody' })
  harness = await Harness.on(world.server)
})

after(async () => {
  await harness?.close()
  await world?.stop()
})

const optionsOf = (reader) => {
  const [size, colorScheme] = reader.split('-')
  return { viewport: SIZES[size], colorScheme, reducedMotion: 'reduce' }
}

/** Notes what is wrong with a page in a state, and draws it. */
const looker = (reader, found) => async (tab, page, state) => {
  if (PICTURES) await tab.screenshot({ path: join(PICTURES, `${page}-${state}-${reader}.png`) })
  // The pages with their data are those of pagesLook.mjs.
  const isNew = state === 'loading' || state === 'error' || state === 'empty'
  if (isNew) found.push(...(await serious(tab)).map((one) => `${page}, ${state}: ${one}`))
  const wide = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth)
  if (wide > 0) found.push(`${page}, ${state}: ${wide} px wider than the window`)
}

/** Whether a drawer over the page shows nothing but its title. */
const hasBlankDrawer = (tab) =>
  tab.locator('.mantine-Drawer-body').evaluateAll((all) => {
    const isBlank = (one) => one.textContent.trim() === '' && !one.querySelector('[aria-busy=true], input')
    return all.some(isBlank)
  })

/** Parts of pages of a new broker that have nothing to show. */
const EMPTIES_MIN = 20
/** Empty parts below a form or a choice of the same page, which is the next step. */
const BELOW_A_FORM = new Set([
  'Name a topic',
  'Nothing was used in this time',
  'No passkey yet',
  'Nothing was done with your account yet',
])

/** Notes each empty part without a title or a next step, and returns how many parts there are. */
async function leadsOn(tab, page, found) {
  const parts = await tab.locator('[data-empty]').evaluateAll((all) =>
    all.map((one) => ({
      title: one.querySelector('h1, h2, h3')?.textContent ?? '',
      hasStep: one.querySelector('a[href], button:not(:disabled), pre') !== null,
    })),
  )
  for (const { title, hasStep } of parts) {
    if (title === '') found.push(`${page} has an empty part without a title`)
    else if (!hasStep && !BELOW_A_FORM.has(title)) found.push(`${page}: "${title}" names no next step`)
  }
  return parts.length
}

for (const reader of READERS) {
  test(`${reader}: each page says that it loads, that a part has no answer, and that the server is away`, async () => {
    const gates = []
    const visitors = async () => {
      const [pages, operators] = await Promise.all([world.server.url, world.server.admin].map(Gate.before))
      gates.push(pages, operators)
      const both = [world.api, undefined].map((api) =>
        harness.visitor(api, { ...optionsOf(reader), url: pages.url }),
      )
      return (await Promise.all(both)).map((visitor) => ({ ...visitor, gates: { pages, operators } }))
    }
    const found = []
    const look = looker(reader, found)
    const stopped = { pages: 0 }
    const all = pagesOf({ ...world, admin: world.server.admin })
    const complaints = await eachPage(all, visitors, async ({ page, path, visitor }) => {
      if ((ONLY && !ONLY.includes(page)) || page === NOT_STARTED) return
      const isOperator = path.startsWith(world.server.admin)
      const gate = visitor.gates[isOperator ? 'operators' : 'pages']
      const tab = await visitor.context.newPage()
      const note = (what) => () => found.push(`${page} ${what}`)
      gate.stopped = 0
      gate.hold(isData)
      await tab.goto(new URL(path.replace(world.server.admin, ''), gate.url).href)
      await tab.getByRole('heading', { level: 1 }).first().waitFor()
      await tab.waitForTimeout(LOOK_MS)
      const hasData = gate.stopped > 0
      if (hasData) {
        stopped.pages += 1
        const busy = await tab.locator('[aria-busy=true]').count()
        if (busy === 0 && !WAITING.has(page)) note('does not say that it loads')()
        if (await hasBlankDrawer(tab)) note('has a blank drawer while it loads')()
        await look(tab, page, 'loading')
        gate.cut(isData)
        await tab
          .getByText(/does not answer|stopped answering|Try again/)
          .first()
          .waitFor({ timeout: 10_000 })
          .catch(note('does not say that a part has no answer'))
        if (await hasBlankDrawer(tab)) note('has a blank drawer when a part has no answer')()
        await look(tab, page, 'error')
      }
      gate.pass()
      await settled(tab)
      await tab
        .getByText(/^The server does not answer$/)
        .first()
        .waitFor({ state: 'detached', timeout: 20_000 })
        .catch(note('does not come back by itself'))
      if (PICTURES) await look(tab, page, 'loaded')
      gate.down()
      // A reader who comes back to the tab has its data asked for at once.
      await tab.evaluate(() => window.dispatchEvent(new Event('visibilitychange')))
      await tab.getByText(AWAY).waitFor().catch(note('does not say that the server is away'))
      await look(tab, page, 'offline')
      gate.pass()
      await tab.getByText(AWAY).waitFor({ state: 'detached' }).catch(note('does not see the server again'))
      await tab.close()
    })
    for (const gate of gates) gate.close()
    assert.deepEqual(found, [])
    assert.ok(ONLY || stopped.pages > 20, `only ${stopped.pages} pages asked for data`)
    assert.deepEqual(complaints, [])
  })

  test(`${reader}: a page without anything to show says why, and what to do next`, async () => {
    const ben = new Api(world.server.url)
    const organisation = await ben.signUp(`Ben-${reader}`)
    const found = []
    let empties = 0
    const look = looker(reader, found)
    const visitors = () => Promise.all([harness.visitor(ben, optionsOf(reader)), harness.visitor(undefined)])
    const empty = { brokers: '/?all=true' }
    const first = await eachPage(empty, visitors, async ({ path, visitor: { tab } }) => {
      await tab.goto(new URL(path, world.server.url).href)
      await settled(tab)
      await look(tab, 'no-broker', 'empty')
      empties += await leadsOn(tab, 'no-broker', found)
    })
    const { name } = await ben.post(`${organisation}/brokers`, { display_name: 'Quiet' })
    const all = pagesOf({ ...world, organisation, tenant: name, admin: world.server.admin })
    const own = Object.entries(all)
      .filter(([page, path]) => path.startsWith('/b/') || page.startsWith('org-') || page === 'account')
      .map(([page, path]) => [page, path.replace('/b/default', `/b/${name}`)])
    const complaints = await eachPage(Object.fromEntries(own), visitors, async (one) => {
      const { page, path, visitor } = one
      if (ONLY && !ONLY.includes(page)) return
      const { tab } = visitor
      await tab.goto(new URL(path, world.server.url).href)
      await settled(tab)
      await look(tab, page, 'empty')
      empties += await leadsOn(tab, page, found)
    })
    assert.deepEqual(found, [])
    assert.ok(ONLY || empties >= EMPTIES_MIN, `only ${empties} parts of pages are empty`)
    assert.deepEqual([...first, ...complaints], [])
  })
}

test('a server that goes away before it has said who is signed in: the page says so, and opens by itself', async () => {
  const gate = await Gate.before(world.server.url)
  const { tab, context, complaints } = await harness.visitor(world.api, { url: gate.url })
  gate.cut((pathname) => pathname.startsWith('/api/'))
  await tab.goto(`${gate.url}/b/default/clients`)
  await tab.getByRole('heading', { name: 'The server does not answer' }).waitFor()
  await tab.getByText(AWAY).waitFor()
  assert.deepEqual(await serious(tab), [])
  gate.pass()
  await tab.getByRole('heading', { name: 'Clients' }).waitFor()
  await tab.getByText(AWAY).waitFor({ state: 'detached' })
  gate.close()
  await context.close()
  assert.deepEqual(complaints, [])
})

test('another broker that is opened while the server is away: the page says so, and comes by itself', async () => {
  const gate = await Gate.before(world.server.url)
  const { tab, context, complaints } = await harness.visitor(world.api, { url: gate.url })
  await tab.goto(`${gate.url}/?all=true`)
  await settled(tab)
  gate.down()
  await tab.getByText(AWAY).waitFor()
  await tab
    .getByRole('link', { name: /Plant 7/ })
    .first()
    .click()
  await tab.getByText('This part of the page loads when the server answers again.').first().waitFor()
  gate.pass()
  await tab.getByRole('heading', { level: 1, name: 'Plant 7' }).waitFor()
  gate.close()
  await context.close()
  assert.deepEqual(complaints, [])
})

test('a drawer for something new opens while the list behind it has no answer', async () => {
  const gate = await Gate.before(world.server.url)
  const { tab, context, complaints } = await harness.visitor(world.api, { url: gate.url })
  const isList = (pathname) => /\/(credentials|bans|claim-tokens)$/.test(pathname)
  for (const [address, drawer, button] of [
    ['access', 'Create credential', 'Create credential'],
    ['access?tab=bans', 'Add ban', 'Add ban'],
    ['access', 'Create claim token', 'Create claim token'],
  ]) {
    gate.hold(isList)
    await tab.goto(`${gate.url}/b/${world.tenant}/${address}`)
    await tab.getByRole('button', { name: button, exact: true }).click()
    await tab.getByRole('dialog', { name: drawer }).getByRole('textbox').first().waitFor()
    gate.pass()
  }
  gate.close()
  await context.close()
  assert.deepEqual(complaints, [])
})
