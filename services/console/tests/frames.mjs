// How long the first page takes, and frames a second where the console has most to draw: a list of ten thousand clients, and a
// thousand messages a second. Each figure is the median of three runs.
//
//   make console-bench                                                 with --check
//   MILLRACE=target/release/millrace node tests/frames.mjs
//   MILLRACE=target/release/millrace node tests/frames.mjs --check     fails below FRAMES_PER_S_MIN, or with a slow or large first page
//
// Without --check it only prints figures, which README.md keeps with the machine they come from. Other work on the machine costs frames;
// the processor time of the main thread does not depend on it. Long tasks (over 50 ms) are counted by the clock.

import { once } from 'node:events'
import { connect } from 'node:net'
import { availableParallelism, loadavg } from 'node:os'
import { launch, withSession } from './browser.mjs'
import { busyTime, firstPage, medians } from './firstPage.mjs'
import { Api, Server, until } from './server.mjs'

const CLIENTS = Number(process.env.CLIENTS ?? 10_000)
const MESSAGES_PER_S = Number(process.env.MESSAGES_PER_S ?? 1000)
const SECONDS = 10
const RUNS = Number(process.env.RUNS ?? 3)
/** CONNECTs that wait for their CONNACK at once. */
const CONNECTING = 50
const TICK_MS = 20
/** The least median of frames a second that --check accepts. A quiet machine is needed: other work costs frames. */
const FRAMES_PER_S_MIN = 50
/** The most that --check accepts of the first page, also on a quiet machine. */
const FIRST_PAGE_MAX = { interactive_ms: 1000, script_kB: 300 }
const isChecking = process.argv.includes('--check')
/** Pixels a frame. */
const SCROLLING = [
  ['scrolled with the wheel', 120],
  ['pulled at the scroll bar, each row new in each frame', 1760],
]

const short = (number) => Buffer.from([number >> 8, number & 255])
const text = (value) => Buffer.concat([short(Buffer.byteLength(value)), Buffer.from(value)])

/** An MQTT packet of less than 16 KiB. */
function packet(type, ...parts) {
  const body = Buffer.concat(parts)
  const length = body.length < 128 ? [body.length] : [(body.length & 127) | 128, body.length >> 7]
  return Buffer.concat([Buffer.from([type, ...length]), body])
}

/** A 3.1.1 client without keep alive: a library would need far more memory for ten thousand. */
async function mqttClient(port, id) {
  const socket = connect({ host: '127.0.0.1', port, noDelay: true })
  socket.write(packet(0x10, text('MQTT'), Buffer.from([4, 2, 0, 0]), text(id)))
  const [answer] = await once(socket, 'data')
  if (answer[0] !== 0x20 || answer[3] !== 0) throw new Error(`${id}: CONNACK ${answer.toString('hex')}`)
  socket.resume()
  return socket
}

const slow = []

/** Notes a figure that is below the threshold. */
function judge(what, { frames_per_s }) {
  if (!(frames_per_s >= FRAMES_PER_S_MIN))
    slow.push(`${what}: ${frames_per_s} frames/s, not ${FRAMES_PER_S_MIN}`)
}

/** Counts frames and the time of the main thread for some seconds, while `act` continues. */
async function measured(tab, act) {
  const busy = await busyTime(tab)
  const before = await busy()
  const counting = tab.evaluate(
    (ms) =>
      new Promise((done) => {
        const times = []
        let longMs = 0
        const observer = new PerformanceObserver((list) => {
          for (const { duration } of list.getEntries()) longMs += duration
        })
        observer.observe({ type: 'longtask' })
        const frame = (now) => {
          times.push(now)
          if (now - times[0] < ms) requestAnimationFrame(frame)
          else {
            observer.disconnect()
            done({ times, longMs })
          }
        }
        requestAnimationFrame(frame)
      }),
    SECONDS * 1000,
  )
  const stop = act?.()
  const { times, longMs } = await counting
  stop?.()
  const seconds = (times.at(-1) - times[0]) / 1000
  const gaps = times.slice(1).map((time, at) => time - times[at])
  return {
    frames_per_s: Math.round((times.length - 1) / seconds),
    worst_gap_ms: Math.round(Math.max(...gaps)),
    p99_gap_ms: Math.round(gaps.toSorted((a, b) => a - b)[Math.floor(gaps.length * 0.99)]),
    busy_ms_per_s: Math.round(((await busy()) - before) / seconds),
    long_task_ms_per_s: Math.round(longMs / seconds),
  }
}

const server = await Server.make({ 'sign-up': 'anybody' })
const browser = await launch()
const sockets = []
try {
  const api = new Api(server.url)
  await api.signUp('Ann', server.link('/sign-up'))
  for (let from = 0; from < CLIENTS; from += CONNECTING) {
    const ids = Array.from({ length: Math.min(CONNECTING, CLIENTS - from) }, (_, at) => `device-${from + at}`)
    sockets.push(...(await Promise.all(ids.map((id) => mqttClient(server.ports.mqtt, id)))))
  }
  console.log(`load average ${loadavg()[0].toFixed(1)} on ${availableParallelism()} cores`)
  const first = await medians(RUNS, () => firstPage(browser, `${server.url}/b/default`, { api }))
  console.log(`first page, empty cache: ${JSON.stringify(first)}`)
  for (const [figure, most] of Object.entries(FIRST_PAGE_MAX)) {
    if (first[figure] > most) slow.push(`first page: ${figure} is ${first[figure]}, more than ${most}`)
  }
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } })
  await withSession(context, server.url, api)
  const tab = await context.newPage()

  await tab.goto(`${server.url}/b/default/clients`)
  const status = tab.getByRole('status').filter({ hasText: 'connected' })
  const wanted = new RegExp(`^${CLIENTS.toLocaleString('en-US')}\\b`)
  await until('all clients in the list', async () => wanted.test((await status.textContent()) ?? ''), 300_000)
  for (const [how, pixels] of SCROLLING) {
    const scroll = () => {
      const scrolling = tab.evaluate((pixels) => {
        const list = document.querySelector('[role=table] [tabindex]')
        const step = () => {
          list.scrollTop = (list.scrollTop + pixels) % (list.scrollHeight - list.clientHeight)
          window.scrolling = requestAnimationFrame(step)
        }
        step()
      }, pixels)
      scrolling.catch(() => {})
      return () => void tab.evaluate(() => cancelAnimationFrame(window.scrolling)).catch(() => {})
    }
    const figures = await medians(RUNS, () => measured(tab, scroll))
    console.log(`${CLIENTS} clients, ${how}: ${JSON.stringify(figures)}`)
    judge(`${CLIENTS} clients, ${how}`, figures)
  }

  await tab.goto(`${server.url}/b/default/live`)
  await tab.getByText(/Connected as console-/).waitFor()
  const publisher = await mqttClient(server.ports.mqtt, 'publisher')
  let sent = 0
  const publish = () => {
    const before = sent
    const began = performance.now()
    const timer = setInterval(() => {
      const due = ((performance.now() - began) / 1000) * MESSAGES_PER_S
      for (; sent - before < due; sent += 1) {
        const payload = Buffer.from(`{"celsius":${20 + (sent % 10)},"ok":true}`)
        publisher.write(packet(0x30, text(`plant/line-${sent % 100}/temperature`), payload))
      }
    }, TICK_MS)
    return () => clearInterval(timer)
  }
  const live = await medians(RUNS, () => measured(tab, publish))
  const said = await tab
    .getByText(/received, /)
    .first()
    .textContent()
  console.log(
    `live view, ${Math.round(sent / SECONDS / RUNS)} messages/s published: ${JSON.stringify(live)}; ${said.trim()}`,
  )
  judge('live view', live)
  publisher.destroy()
} finally {
  for (const socket of sockets) socket.destroy()
  await browser.close()
  await server.stop()
}

if (isChecking && slow.length > 0) {
  console.error(slow.join('\n'))
  process.exitCode = 1
}
