// The README's page in a real browser: it connects, subscribes, publishes and shows the message. Then more of mqtt.js over
// the browser's own WebSocket. The server's own pages are checked by the suite `console`.

import { spawn } from 'node:child_process'
import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const { NODE_CLIENTS, CHROMIUM, OPEN_WS } = process.env
const { chromium } = createRequire(`${NODE_CLIENTS}/`)('playwright-core')
const MS_MAX = 20_000
let failed = false

async function check(name, run) {
  try {
    await run()
    console.log(`ok browser: ${name}`)
  } catch (error) {
    failed = true
    console.log(`FAILED: browser: ${name}: ${String(error.message).split('\n')[0].slice(0, 300)}`)
    console.log(error.stack)
  }
}

function equal(got, wanted) {
  if (JSON.stringify(got) !== JSON.stringify(wanted)) throw new Error(`got ${JSON.stringify(got)}, wanted ${JSON.stringify(wanted)}`)
}

// The page as a reader of the README has it, but for the port of this broker.
const readme = await readFile(fileURLToPath(new URL('../../../../README.md', import.meta.url)), 'utf8')
const snippet = /```html\n(.*?)```/s.exec(readme)?.[1] ?? ''
const page = snippet.replace('ws://127.0.0.1:8083/mqtt', `ws://127.0.0.1:${OPEN_WS}/mqtt`)

// The folder that the README describes, served by the README's command, on a free port.
const folder = await mkdtemp(join(tmpdir(), 'readme-page-'))
await writeFile(join(folder, 'index.html'), page)
await symlink(join(NODE_CLIENTS, 'node_modules'), join(folder, 'node_modules'))
const [program, ...args] = (/^python3 -m http\.server .*$/m.exec(readme)?.[0] ?? '').replace(' 8000', ' 0').split(' ')
const server = spawn(program, args, { cwd: folder, env: { ...process.env, PYTHONUNBUFFERED: '1' } })
const port = await new Promise((resolve, reject) => {
  let said = ''
  server.stdout.on('data', (data) => {
    said += data
    const found = / port (\d+) /.exec(said)
    if (found) resolve(found[1])
  })
  server.on('error', reject)
  server.on('exit', () => reject(new Error(`the server of the page ended: ${said}`)))
})
// It waits where nobody reads its log.
server.stderr.resume()
const address = `http://127.0.0.1:${port}/`

const browser = await chromium.launch({
  executablePath: CHROMIUM,
  headless: true,
  timeout: 60_000,
  args: [
    '--no-sandbox', '--headless', '--disable-gpu', '--disable-background-networking', '--disable-component-update',
    '--disable-sync', '--no-first-run',
  ],
})
const tab = await browser.newPage()
tab.setDefaultTimeout(MS_MAX)
const complaints = []
tab.on('pageerror', (error) => complaints.push(String(error)))
tab.on('console', (message) => {
  // Browsers ask every site for its icon.
  if (message.type() === 'error' && !message.location().url.endsWith('/favicon.ico')) complaints.push(message.text())
})

await check('the page of the README shows its message', async () => {
  equal(page.includes(`ws://127.0.0.1:${OPEN_WS}/mqtt`), true)
  await tab.goto(address)
  await tab.locator('#messages li').first().waitFor()
  equal(await tab.locator('#messages li').allTextContents(), ['hello/world: hi from the browser'])
  equal(complaints, [])
})

await check('the page is refused as a file, as the README says', async () => {
  const other = await browser.newPage()
  const refusal = other.waitForEvent('console', { predicate: (message) => message.text().includes('403'), timeout: MS_MAX })
  await other.goto(pathToFileURL(join(folder, 'index.html')).href)
  await refusal
  await other.close()
})

for (const protocolVersion of [3, 4, 5]) {
  await check(`MQTT ${{ 3: '3.1', 4: '3.1.1', 5: '5.0' }[protocolVersion]}: payloads at each QoS`, async () => {
    const got = await tab.evaluate(async ({ url, protocolVersion, msMax }) => {
      const client = await window.mqtt.connectAsync(url, {
        protocolVersion, protocolId: protocolVersion === 3 ? 'MQIsdp' : 'MQTT', reconnectPeriod: 0, connectTimeout: msMax,
      }, false)
      const large = window.crypto.getRandomValues(new Uint8Array(60_000))
      const payloads = ['', 'hello', 'ü', large, new Uint8Array(200 * 1024).fill(7)]
      const same = []
      const all = new Promise((resolve, reject) => {
        setTimeout(() => reject(new Error(`${same.length} messages came`)), msMax)
        client.on('message', (_topic, payload, { qos }) => {
          const wanted = payloads[same.length % payloads.length]
          const bytes = typeof wanted === 'string' ? new TextEncoder().encode(wanted) : wanted
          same.push(qos === Math.floor(same.length / payloads.length) && payload.length === bytes.length
            && bytes.every((byte, at) => byte === payload[at]))
          if (same.length === 3 * payloads.length) resolve()
        })
      })
      await client.subscribeAsync(`browser/${protocolVersion}`, { qos: 2 })
      for (const qos of [0, 1, 2]) {
        for (const payload of payloads) {
          await client.publishAsync(`browser/${protocolVersion}`, payload, { qos })
        }
      }
      await all
      await client.endAsync()
      return same
    }, { url: `ws://127.0.0.1:${OPEN_WS}/mqtt`, protocolVersion, msMax: MS_MAX })
    equal(got, Array(15).fill(true))
    equal(complaints, [])
  })
}

await browser.close()
server.removeAllListeners('exit')
server.kill()
await rm(folder, { recursive: true })
process.exit(failed ? 1 : 0)
