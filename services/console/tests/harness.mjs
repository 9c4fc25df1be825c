// Shared by the browser tests: a browser, visitors whose pages must not complain, devices, and axe.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import mqtt from 'mqtt'
import { launch, withSession } from './browser.mjs'
import { WITHOUT_SESSION } from './pages.mjs'

/** A wait ends when its condition holds, and fails after this time. */
const MS_MAX = Number(process.env.MS_MAX ?? 60_000)
const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

/** A browser for one server. */
export class Harness {
  #devices = []

  static async on(server) {
    const harness = new Harness()
    harness.server = server
    harness.browser = await launch()
    return harness
  }

  async close() {
    for (const device of this.#devices) device.end(true)
    await this.browser?.close()
  }

  /** A device. It stays connected until the end. */
  async device(options) {
    const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${this.server.ports.mqtt}`, {
      protocolVersion: 5,
      reconnectPeriod: 0,
      ...options,
    })
    this.#devices.push(client)
    return client
  }

  /** A browser of its own, for the server or another `url` before it; `complaints` is what went wrong in its pages. */
  async visitor(api, { url = this.server.url, ...options } = {}) {
    const context = await this.browser.newContext({ viewport: { width: 1280, height: 900 }, ...options })
    context.setDefaultTimeout(MS_MAX)
    await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: url })
    if (api) await withSession(context, url, api)
    const tab = await context.newPage()
    const complaints = []
    tab.on('pageerror', (error) => complaints.push(String(error)))
    tab.on('console', (message) => {
      if (message.type() === 'error' && /Content Security Policy|Uncaught/.test(message.text())) {
        complaints.push(message.text())
      }
    })
    return { tab, context, complaints }
  }

  /**
   * Opens a page as `api`, does something in it, and closes it. The page must not have complained. `prepare` gets the tab before
   * the page is opened.
   */
  async on(url, act, { api, prepare } = {}) {
    const { tab, context, complaints } = await this.visitor(api)
    await prepare?.(tab)
    await tab.goto(url)
    await settled(tab)
    await act(tab)
    assert.deepEqual(complaints, [])
    await context.close()
  }
}

/** Serious findings of axe on a page. */
export async function serious(tab) {
  // Through the debugger: the page's policy would not run a script that is no file of the server.
  // A dialog that fades in has little contrast.
  await tab.evaluate(() => {
    const ends = document.getAnimations().filter((one) => one.effect.getComputedTiming().endTime !== Infinity)
    return Promise.allSettled(ends.map(({ finished }) => finished))
  })
  await tab.evaluate(axeSource)
  const { violations } = await tab.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }))
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(
      ({ id, nodes }) =>
        `${id}: ${nodes
          .map(({ target, failureSummary }) => `${target} ${failureSummary}`)
          .slice(0, 2)
          .join('; ')}`,
    )
}

/** Contrast of a disabled button's label to its ground (WCAG 2.2). axe looks at controls in use only. */
export async function disabledContrast(button) {
  const colors = await button.evaluate((one) => {
    const { color, backgroundColor } = getComputedStyle(one)
    return [color, backgroundColor]
  })
  const [lighter, darker] = colors.map(luminance).sort((one, other) => other - one)
  return (lighter + 0.05) / (darker + 0.05)
}

/** Relative luminance of a color such as "rgb(87, 102, 110)". */
function luminance(color) {
  const [, ...channels] = /^rgb\((\d+), (\d+), (\d+)\)$/.exec(color) ?? []
  if (channels.length === 0) throw new Error(`${color} is no opaque color`)
  const [red, green, blue] = channels.map((channel) => {
    const part = Number(channel) / 255
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4
  })
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue
}

/** Waits until a page shows its content: a heading, and nothing that still loads. */
export async function settled(tab) {
  await tab.getByRole('heading', { level: 1 }).first().waitFor()
  await tab.waitForFunction(() => document.querySelector('[aria-busy=true]') === null)
}

/** Pages that are open at once: while one waits for its data, the browser draws the other. */
const LANES = 2

/** Opens each page with the visitors of one lane, which `visitors` makes. Returns their complaints. */
export async function eachPage(pages, visitors, look) {
  const waiting = Object.entries(pages)
  const complaints = []
  const lane = async () => {
    const [member, guest] = await visitors()
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      const [page, path] = next
      await look({ page, path, visitor: WITHOUT_SESSION.has(page) ? guest : member })
    }
    for (const visitor of [member, guest]) {
      complaints.push(...visitor.complaints)
      await visitor.context.close()
    }
  }
  await Promise.all(Array.from({ length: LANES }, lane))
  return complaints
}
