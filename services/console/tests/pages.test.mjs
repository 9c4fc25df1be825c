// Every page, with content and without, as each reader may meet it: light or dark, wide or narrow.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { demo } from './demo.mjs'
import { disabledContrast, eachPage, Harness, serious, settled } from './harness.mjs'
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

const pages = () => pagesOf({ ...world, admin: world.server.admin })

const WIDE = { width: 1440, height: 900 }
const NARROW = { width: 390, height: 844 }
const READERS = [
  { name: 'light, 1440 px', colorScheme: 'light', viewport: WIDE },
  { name: 'dark, 390 px', colorScheme: 'dark', viewport: NARROW },
  { name: 'dark, 1440 px', colorScheme: 'dark', viewport: WIDE },
  { name: 'light, 390 px', colorScheme: 'light', viewport: NARROW },
]
/** Cumulative layout shift of a page that loads. Above 0.1 a page counts as restless (web.dev/cls). */
const SHIFT_MAX = 0.1

for (const { name, ...reader } of READERS) {
  test(`${name}: axe finds nothing serious, nothing is cut or jumps, no page complains`, async () => {
    const visitors = async () => {
      const both = [world.api, undefined].map((api) =>
        harness.visitor(api, { ...reader, reducedMotion: 'reduce' }),
      )
      const made = await Promise.all(both)
      for (const { context } of made) await context.addInitScript(countShifts)
      return made
    }
    const found = []
    const complaints = await eachPage(pages(), visitors, async ({ page, path, visitor: { tab } }) => {
      await tab.goto(new URL(path, world.server.url).href)
      await settled(tab)
      found.push(...(await serious(tab)).map((one) => `${page}: ${one}`))
      const wide = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth)
      if (wide > 0) found.push(`${page} is ${wide} px wider than the window`)
      const cut = reader.viewport.width < 600 ? await tab.evaluate(cutCode) : []
      found.push(...cut.map((text) => `${page} cuts ${text}`))
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
function cutCode() {
  const isCut = (one) => one.scrollWidth > one.clientWidth
  return [...document.querySelectorAll('pre')].filter(isCut).map((one) => one.textContent.slice(0, 40))
}

test('390 px: each snippet is seen whole', async () => {
  const { tab, context } = await harness.visitor(world.api, { viewport: { width: 390, height: 844 } })
  await tab.goto(new URL(`/b/${world.tenant}/connect`, world.server.url).href)
  await settled(tab)
  const names = await tab.getByRole('tab').allTextContents()
  assert.ok(names.length >= 8, names.join())
  for (const name of names) {
    await tab.getByRole('tab', { name, exact: true }).click()
    await tab.getByRole('tabpanel', { name }).locator('pre').first().waitFor()
    assert.deepEqual(await tab.evaluate(cutCode), [], name)
  }
  await context.close()
})

test('each page says that the server is away, and takes it back', async () => {
  const visitors = () => Promise.all([harness.visitor(world.api), harness.visitor()])
  const complaints = await eachPage(pages(), visitors, async ({ page, path, visitor: { tab, context } }) => {
    await tab.goto(new URL(path, world.server.url).href)
    await settled(tab)
    const bar = tab.getByText(/^The server stopped answering/)
    await context.setOffline(true)
    // A reader who comes back to the tab has its data asked for at once.
    await tab.evaluate(() => window.dispatchEvent(new Event('visibilitychange')))
    await bar.waitFor().catch(() => assert.fail(`${page} does not say that the server is away`))
    await context.setOffline(false)
    await bar.waitFor({ state: 'detached' })
  })
  assert.deepEqual(complaints, [])
})

for (const { name, ...reader } of READERS) {
  test(`${name}: the label of a disabled button can be read`, async () => {
    const { tab, context } = await harness.visitor(world.api, { ...reader, reducedMotion: 'reduce' })
    await tab.goto(new URL('/me', world.server.url).href)
    await settled(tab)
    const button = tab.getByRole('button', { name: 'Change name' })
    assert.ok(await button.isDisabled())
    const contrast = await disabledContrast(button)
    // AA for text of this size.
    assert.ok(contrast >= 4.5, `the contrast is ${contrast}`)
    await context.close()
  })
}

test('compact tables: rows are lower, cut no text, and stay so after a reload', async () => {
  const { tab, context, complaints } = await harness.visitor(world.api, {
    viewport: { width: 1440, height: 900 },
  })
  const rowHeight = () =>
    tab
      .getByRole('row')
      .nth(1)
      .evaluate((row) => row.getBoundingClientRect().height)
  await tab.goto(new URL(pages().clients, world.server.url).href)
  await tab.getByRole('row').nth(1).waitFor()
  const spacious = await rowHeight()
  await tab.getByRole('button', { name: 'Use compact tables' }).click()
  await tab.getByRole('button', { name: 'Use spacious tables' }).waitFor()
  const compact = await rowHeight()
  assert.ok(compact < spacious, `${compact} px instead of ${spacious}`)
  await tab.reload()
  await tab.getByRole('row').nth(1).waitFor()
  assert.equal(await rowHeight(), compact)
  const found = []
  for (const page of [
    'clients',
    'sessions',
    'topics',
    'incidents',
    'access',
    'webhooks',
    'live',
    'org-members',
    'org-tokens',
    'org-audit',
  ]) {
    await tab.goto(new URL(pages()[page], world.server.url).href)
    await settled(tab)
    await tab.getByRole('row').nth(1).waitFor()
    found.push(...(await serious(tab)).map((one) => `${page}: ${one}`))
    found.push(...(await tab.evaluate(cutCells)).map((text) => `${page} cuts ${text}`))
  }
  assert.deepEqual(found, [])
  assert.deepEqual(complaints, [])
  await context.close()
})

/** Runs in the page: cells whose content is higher than their row. */
function cutCells() {
  const isCut = (cell) => cell.getBoundingClientRect().height > cell.parentElement.clientHeight
  return [...document.querySelectorAll('[role=cell]')]
    .filter(isCut)
    .map((one) => one.textContent.slice(0, 40))
}
