// Streams of events that the server refuses: the pages say why, and continue by themselves. The refusals are those of the server, which has
// as many streams of one organisation as it allows.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Harness, settled } from './harness.mjs'
import { Api, ownerOf, PASSWORD, Server } from './server.mjs'

/** More than the server allows one holder. */
const STREAMS = 100

let server
let harness
let owner
let at

before(async () => {
  server = await Server.make({ 'sign-up': 'anybody' })
  harness = await Harness.on(server)
  const made = await ownerOf(server)
  owner = made.owner
  at = `${made.organisation}/brokers/default`
})

after(async () => {
  await harness?.close()
  await server?.stop()
})

/** Opens streams until the server refuses one twice: streams of a page before may still end. Returns what closes them. */
async function takeAll() {
  const all = new AbortController()
  let refused = 0
  for (let asked = 0; asked < STREAMS; asked += 1) {
    const { status } = await fetch(`http://127.0.0.1:${server.ports.http}/api/v1${at}/metrics/stream`, {
      headers: { cookie: owner.cookie },
      signal: all.signal,
    })
    if (status === 429) {
      refused += 1
      if (refused === 2) return () => all.abort()
      await new Promise((resolve) => setTimeout(resolve, 2_000))
    } else assert.equal(status, 200)
  }
  return assert.fail('the server refuses no stream')
}

const REFUSED = /streams on this server, and that is the most: close one\. The page tries again by itself\./

test('each page whose stream is refused says why, and continues when there is room', async () => {
  const { tab, context, complaints } = await harness.visitor(owner)
  const asked = []
  tab.on('request', (request) => asked.push(new URL(request.url()).pathname))
  const pages = [
    ['/b/default', [/^No live numbers: /, REFUSED], 'Listening to #'],
    ['/b/default/topics', [REFUSED], 'Listening to #'],
    ['/b/default/clients/pump-7?tab=trace', [REFUSED], 'Tracing'],
  ]
  for (const [path, said, open] of pages) {
    // The page before gives its streams back.
    await tab.goto('about:blank')
    const close = await takeAll()
    await tab.goto(`${server.url}${path}`)
    await settled(tab)
    if (open === 'Tracing') await tab.getByRole('button', { name: 'Start trace' }).click()
    for (const text of said) await tab.getByRole('status').filter({ hasText: text }).first().waitFor()
    asked.length = 0
    await tab.waitForTimeout(2_500)
    const again = asked.filter((one) => /\/(tail|trace|metrics\/stream)$/.test(one))
    assert.deepEqual(again, [], `${path} asks again at once`)
    close()
    await tab.getByText(open, { exact: true }).waitFor()
    await tab.getByText(REFUSED).waitFor({ state: 'detached' })
  }
  assert.deepEqual(complaints, [])
  await context.close()
})

test('a trace whose session ends says so at once, and continues after the sign-in', async () => {
  const person = new Api(server.url)
  await person.post('/sign-in', { email: owner.email, password: PASSWORD })
  const { tab, context, complaints } = await harness.visitor(person)
  await tab.goto(`${server.url}/b/default/clients/pump-7?tab=trace`)
  await settled(tab)
  await tab.getByRole('button', { name: 'Start trace' }).click()
  await tab.getByText('Tracing', { exact: true }).waitFor()
  await person.post('/sign-out')
  const dialog = tab.getByRole('dialog', { name: 'Sign in' })
  await dialog.getByRole('textbox', { name: 'Password' }).fill(PASSWORD)
  await dialog.getByRole('button', { name: 'Sign in', exact: true }).click()
  await dialog.waitFor({ state: 'detached' })
  await tab.getByText('Tracing', { exact: true }).waitFor()
  assert.deepEqual(complaints, [])
  await context.close()
})
