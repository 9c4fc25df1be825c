// Draws every page, light and dark, wide and narrow.
//
//   MILLRACE=target/release/millrace node tests/screenshots.mjs FOLDER [page...]
//
// ONLY=390-dark draws only these sizes and schemes; FULL=1 draws whole pages, not what fits into the window.

import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { launch, withSession } from './browser.mjs'
import { demo } from './demo.mjs'
import { settled } from './harness.mjs'
import { dialogsOf, pagesOf, WITHOUT_SESSION } from './pages.mjs'

const [folder = 'target/screenshots', ...wanted] = process.argv.slice(2)
const SIZES = [
  { name: '1440', width: 1440, height: 900 },
  { name: '390', width: 390, height: 844 },
]
const SCHEMES = ['light', 'dark']
/** Enough for a busy machine. */
const WAIT_MS_MAX = 180_000
const SETTLE_MS = Number(process.env.SETTLE_MS ?? 1500)

const world = await demo()
const { server, api } = world
const base = server.url
const DIALOGS = dialogsOf(world)
const PAGES = pagesOf({ ...world, admin: server.admin })
for (const [name, { path }] of Object.entries(DIALOGS)) PAGES[name] = path

mkdirSync(folder, { recursive: true })
const browser = await launch()
try {
  for (const scheme of SCHEMES) {
    for (const { name: size, width, height } of SIZES) {
      if (process.env.ONLY && !process.env.ONLY.split(',').includes(`${size}-${scheme}`)) continue
      const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme })
      const guest = await browser.newContext({ viewport: { width, height }, colorScheme: scheme })
      await withSession(context, base, api)
      for (const one of [context, guest]) one.setDefaultTimeout(WAIT_MS_MAX)
      for (const [page, path] of Object.entries(PAGES)) {
        if (wanted.length > 0 && !wanted.includes(page)) continue
        const tab = await (WITHOUT_SESSION.has(page) ? guest : context).newPage()
        tab.on('pageerror', (error) => console.log(`${page}: ${error}`))
        await tab.goto(new URL(path, base).href)
        await settled(tab)
        await DIALOGS[page]?.open(tab)
        // Charts and numbers that come second by second.
        await tab.waitForTimeout(SETTLE_MS)
        if (process.env.FULL === '1') {
          // A window as high as the page, so that the navigation is as high too.
          const whole = await tab.evaluate(() => document.documentElement.scrollHeight)
          await tab.setViewportSize({ width, height: Math.max(height, whole) })
          await tab.waitForTimeout(500)
        }
        await tab.screenshot({ path: join(folder, `${page}-${size}-${scheme}.png`) })
        await tab.close()
      }
      await context.close()
      await guest.close()
    }
  }
} finally {
  await browser.close()
  await world.stop()
}
