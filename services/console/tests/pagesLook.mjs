// Shared by the tests of pages: readers, and the look at every page as one of them meets it.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { demo } from './demo.mjs'
import { eachPage, Harness, serious, settled } from './harness.mjs'
import { dialogsOf, pagesOf } from './pages.mjs'

const WIDE = { width: 1440, height: 900 }
const NARROW = { width: 390, height: 844 }
export const READERS = [
  { name: 'light, 1440 px', colorScheme: 'light', viewport: WIDE },
  { name: 'dark, 390 px', colorScheme: 'dark', viewport: NARROW },
  { name: 'dark, 1440 px', colorScheme: 'dark', viewport: WIDE },
  { name: 'light, 390 px', colorScheme: 'light', viewport: NARROW },
]
/** The part of the pages that `make test` looks at in the dark theme or in a narrow window: one of each kind. */
const IN_SHORT = [
  'overview',
  'clients',
  'live',
  'access-methods',
  'webhook',
  'usage',
  'account',
  'sign-in',
  'ask-broker-delete',
  'secret',
]
const isShort = process.env.SUITE === 'console-short'
/** Cumulative layout shift of a page that loads. Above 0.1 a page counts as restless (web.dev/cls). */
const SHIFT_MAX = 0.1

/** A world and a browser for the tests of a file, which are registered with this. */
export function prepared() {
  const made = {}
  before(async () => {
    made.world = await demo()
    made.harness = await Harness.on(made.world.server)
  })
  after(async () => {
    await made.harness?.close()
    await made.world?.stop()
  })
  made.pages = () => pagesOf({ ...made.world, admin: made.world.server.admin })
  made.dialogs = () => dialogsOf(made.world)
  return made
}

/** Registers the test of one reader, for a world of `prepared`. */
export function looksRight(made, { name, ...reader }) {
  test(`${name}: axe finds nothing serious, nothing is cut or jumps, no page complains`, async () => {
    const visitors = async () => {
      const both = [made.world.api, undefined].map((api) =>
        made.harness.visitor(api, { ...reader, reducedMotion: 'reduce' }),
      )
      const visitors = await Promise.all(both)
      for (const { context } of visitors) await context.addInitScript(countShifts)
      return visitors
    }
    const found = []
    const dialogs = made.dialogs()
    const behind = Object.entries(dialogs).map(([name, { path }]) => [name, path])
    const all = { ...made.pages(), ...Object.fromEntries(behind) }
    const looked =
      isShort && name !== READERS[0].name
        ? Object.fromEntries(IN_SHORT.map((page) => [page, all[page]]))
        : all
    const complaints = await eachPage(looked, visitors, async ({ page, path, visitor: { tab } }) => {
      await tab.goto(new URL(path, made.world.server.url).href)
      await settled(tab)
      await dialogs[page]?.open(tab)
      found.push(...(await serious(tab)).map((one) => `${page}: ${one}`))
      const wide = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth)
      if (wide > 0) found.push(`${page} is ${wide} px wider than the window`)
      const cut = reader.viewport.width < 600 ? await tab.evaluate(cutCode) : []
      found.push(...cut.map((text) => `${page} cuts ${text}`))
      found.push(...(await tab.evaluate(brokenFlags)).map((flag) => `${page} breaks ${flag}`))
      const { sum, moved } = await tab.evaluate(() => window.shifts)
      if (sum > SHIFT_MAX) found.push(`${page} shifts by ${sum.toFixed(3)}: ${moved.join('; ')}`)
    })
    assert.deepEqual(found, [])
    assert.deepEqual(complaints, [])
  })
}

/** Runs in the page before its own scripts: adds up what moves without the reader having done something. */
function countShifts() {
  window.shifts = { sum: 0, moved: [] }
  new PerformanceObserver((list) => {
    for (const { value, hadRecentInput, sources } of list.getEntries()) {
      if (hadRecentInput) continue
      window.shifts.sum += value
      const names = sources.map(({ node, previousRect, currentRect }) => {
        const element = node?.nodeType === Node.ELEMENT_NODE ? node : node?.parentElement
        const name = `${element?.tagName} "${element?.textContent?.slice(0, 24)}"`
        return `${name} ${Math.round(previousRect.y)}+${Math.round(previousRect.height)} to ${Math.round(currentRect.y)}+${Math.round(currentRect.height)}`
      })
      window.shifts.moved.push(`${value.toFixed(3)} ${names.join(', ')}`)
    }
  }).observe({ type: 'layout-shift', buffered: true })
}

/** Runs in the page: commands and snippets whose text does not fit. */
export function cutCode() {
  const isCut = (one) => one.scrollWidth > one.clientWidth
  return [...document.querySelectorAll('pre')].filter(isCut).map((one) => one.textContent.slice(0, 40))
}

/** Runs in the page: settings such as --mqtt-listen that go over two lines. */
function brokenFlags() {
  const found = []
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (node.parentElement.closest('script, style')) continue
    for (const { 0: flag, index } of node.data.matchAll(/--[a-z]+(-[a-z]+)+/g)) {
      const range = document.createRange()
      range.setStart(node, index)
      range.setEnd(node, index + flag.length)
      const lines = new Set(Array.from(range.getClientRects(), ({ top }) => Math.round(top)))
      if (lines.size > 1) found.push(flag)
    }
  }
  return found
}
