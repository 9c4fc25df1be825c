// Measures the first page: by the link that `make run` prints, and the overview of somebody who is signed in. Empty cache each time.
//
//   MILLRACE=target/release/millrace node tests/firstPage.mjs [RUNS]      needs a quiet machine; THROTTLE=1,4 slows the processor
//
// frames.mjs --check judges these figures. With CONSOLE_DIST it measures this build instead of the one in the binary. `node tests/firstPage.mjs 5` prints medians of 5 runs.

import { availableParallelism, loadavg } from 'node:os'
import { pathToFileURL } from 'node:url'
import { launch, withSession } from './browser.mjs'
import { Api, Server } from './server.mjs'

const WIDE = { viewport: { width: 1440, height: 900 } }
/** Files that are loaded later, for other pages, do not belong to the first page. */
const MOMENTS = {
  interactive: 'main h1',
  charts: '.uplot canvas',
  listening: '[role=status]',
}

export const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]

/** The median of each figure over all runs. */
export async function medians(runs, run) {
  const all = []
  for (let at = 0; at < runs; at += 1) all.push(await run())
  return Object.fromEntries(Object.keys(all[0]).map((key) => [key, median(all.map((one) => one[key]))]))
}

/** Processor time of the page's main thread, in ms. Other processes do not add to it. */
export async function busyTime(tab) {
  const session = await tab.context().newCDPSession(tab)
  await session.send('Performance.enable', { timeDomain: 'threadTicks' })
  return async () => {
    const { metrics } = await session.send('Performance.getMetrics')
    return metrics.find(({ name }) => name === 'TaskDuration').value * 1000
  }
}

/** Runs in the page before its own scripts: notes the frame in which each part is drawn. */
function noteMoments(parts) {
  window.moments = {}
  const isThere = (name, part) =>
    [...document.querySelectorAll(part)].some(
      ({ textContent }) => name !== 'listening' || textContent === 'Listening to #',
    )
  const look = () => {
    for (const [name, part] of Object.entries(parts)) {
      if (window.moments[name] || !isThere(name, part)) continue
      window.moments[name] = true
      requestAnimationFrame(() => {
        window.moments[name] = performance.now()
      })
    }
  }
  new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true })
}

/** Opens `url` in a browser without a cache. `api`: the session that it has already. `slower`: times that its processor is slower. */
export async function firstPage(browser, url, { api, slower = 1 } = {}) {
  const context = await browser.newContext(WIDE)
  try {
    if (api) await withSession(context, new URL(url).origin, api)
    await context.addInitScript(noteMoments, MOMENTS)
    const tab = await context.newPage()
    const session = await context.newCDPSession(tab)
    const sizes = new Map()
    const kinds = new Map()
    session.on('Network.requestWillBeSent', ({ requestId, request, type }) =>
      kinds.set(requestId, { type, url: request.url }),
    )
    session.on('Network.loadingFinished', ({ requestId, encodedDataLength }) =>
      sizes.set(kinds.get(requestId)?.url, encodedDataLength),
    )
    await session.send('Network.enable')
    if (slower > 1) await session.send('Emulation.setCPUThrottlingRate', { rate: slower })
    const busy = await busyTime(tab)
    const before = await busy()
    await tab.goto(url)
    const isThere = (name) => tab.waitForFunction((name) => typeof window.moments[name] === 'number', name)
    await isThere('interactive')
    const busyMs = (await busy()) - before
    await isThere('charts')
    await isThere('listening')
    const wholeMs = (await busy()) - before
    const { moments, paint, needed } = await tab.evaluate(() => {
      const until = Math.max(...Object.values(window.moments))
      return {
        moments: window.moments,
        paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0,
        needed: performance
          .getEntriesByType('resource')
          .filter(({ startTime }) => startTime <= until)
          .map(({ name }) => name),
      }
    })
    const bytesOf = (pattern) =>
      needed.filter((name) => pattern.test(name)).reduce((sum, name) => sum + (sizes.get(name) ?? 0), 0)
    const kB = (pattern) => Math.round(bytesOf(pattern) / 1000)
    return {
      paint_ms: Math.round(paint),
      interactive_ms: Math.round(moments.interactive),
      charts_ms: Math.round(moments.charts),
      listening_ms: Math.round(moments.listening),
      busy_ms: Math.round(busyMs),
      busy_whole_ms: Math.round(wholeMs),
      requests: needed.length + 1,
      script_kB: kB(/\.js$/),
      style_kB: kB(/\.css$/),
      font_kB: kB(/\.woff2$/),
      all_kB: kB(/./),
    }
  } finally {
    await context.close()
  }
}

async function measure(runs) {
  const server = await Server.make()
  const browser = await launch()
  try {
    const link = `${server.url}/#local=${server.link('/', 'local')}`
    console.log(`load average ${loadavg()[0].toFixed(1)} on ${availableParallelism()} cores`)
    for (const slower of (process.env.THROTTLE ?? '1,4').split(',').map(Number)) {
      const figures = await medians(runs, () => firstPage(browser, link, { slower }))
      console.log(`the printed link, processor ${slower} times slower: ${JSON.stringify(figures)}`)
    }
    const api = new Api(server.url)
    await api.post('/sign-in/local', { token: decodeURIComponent(server.link('/', 'local')) })
    const figures = await medians(runs, () => firstPage(browser, `${server.url}/b/default`, { api }))
    console.log(`the overview, signed in: ${JSON.stringify(figures)}`)
  } finally {
    await browser.close()
    await server.stop()
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) await measure(Number(process.argv[2] ?? 5))
