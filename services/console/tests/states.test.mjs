// Each page while its data loads, after the server fails, and after a later success.
// The answers themselves are the server's: a test only delays a request, or has it fail.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { demo } from './demo.mjs'
import { eachPage, Harness, settled } from './harness.mjs'
import { pagesOf } from './pages.mjs'

let world
let harness

before(async () => {
  world = await demo()
  harness = await Harness.on(world.server)
})

after(async () => {
  await harness?.close()
  await world?.stop()
})

/** Requests of the frame around each page: the session, the brokers, the ways to sign in, the pod. */
const FRAME = /^\/(api\/v1\/(me|sign-in\/ways|organisations\/[^/]+\/brokers(\/[^/]+)?)|v1\/operator\/pod)$/
/** These pages wait for a device in any case. */
const WAITING = new Set(['connect', 'connect-tenant'])
/** Numbers of a question that nobody has asked yet, and a trace that nobody has started. */
const UNSEEN = new Set(['org-settings', 'client-trace'])
/** No page has as many. */
const PANELS_MAX = 20
/** PAGES=webhook,usage looks at these alone. */
const ONLY = process.env.PAGES?.split(',')
const DATA = /^\/((api\/v1|v1\/operator)\/|metrics$)/

/** Holds the requests for a page's data back until they are let go, which may be as failures. */
async function hold(tab) {
  const held = { asked: 0, fails: true }
  let letGo
  const gate = new Promise((resolve) => {
    letGo = resolve
  })
  await tab.route(
    ({ pathname }) => DATA.test(pathname) && !FRAME.test(pathname),
    async (route) => {
      // A stream of events opens itself again, and has its own notice.
      const isStream = route.request().resourceType() === 'eventsource'
      if (isStream || route.request().method() !== 'GET') return route.continue()
      held.asked += 1
      await gate
      const failure = { status: 500, contentType: 'text/plain', body: 'broken by the test' }
      // The page may be gone.
      await (held.fails ? route.fulfill(failure) : route.continue()).catch(() => {})
    },
  )
  return { held, letGo }
}

test('each page holds the place of its data, says when it failed, and shows it after another try', async () => {
  const visitors = async () => {
    const both = await Promise.all([harness.visitor(world.api), harness.visitor()])
    if (process.env.MS_MAX)
      for (const { context } of both) context.setDefaultTimeout(Number(process.env.MS_MAX))
    return both
  }
  const found = []
  let failed = 0
  const pages = pagesOf({ ...world, admin: world.server.admin })
  const complaints = await eachPage(pages, visitors, async ({ page, path, visitor: { context } }) => {
    if (UNSEEN.has(page) || (ONLY && !ONLY.includes(page))) return
    const tab = await context.newPage()
    const { held, letGo } = await hold(tab)
    const note = (what) => () => {
      found.push(`${page} ${what}`)
      if (process.env.VERBOSE) console.log(found.at(-1))
    }
    await tab.goto(new URL(path, world.server.url).href)
    await tab
      .getByRole('heading', { level: 1 })
      .first()
      .waitFor()
      .catch(note('has no heading while it loads'))
    const busy = tab.locator('[aria-busy=true]').first()
    if (held.asked > 0 && !WAITING.has(page))
      await busy.waitFor({ state: 'attached' }).catch(note('does not say that it loads'))
    letGo()
    const again = tab.getByRole('button', { name: 'Try again' }).first()
    if (held.asked > 0) {
      failed += 1
      await again.waitFor().catch(note('does not say that it failed'))
      await busy.waitFor({ state: 'detached' }).catch(note('still loads after a failure'))
    }
    held.fails = false
    // Panels that have failed together are asked again one by one, those behind a drawer too.
    for (let tries = 0; tries < PANELS_MAX && (await again.isVisible()); tries += 1) {
      await again.dispatchEvent('click').catch(() => {})
    }
    if (held.asked > 0) await again.waitFor({ state: 'detached' }).catch(note('stays failed'))
    await settled(tab)
    await tab.close()
  })
  assert.deepEqual(found, [])
  assert.ok(ONLY || failed > 20, `only ${failed} pages asked for data`)
  assert.deepEqual(complaints, [])
})
