// Lists of several pages whose next page fails: they keep their rows, say so, and do not ask again and again.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Gate } from './gate.mjs'
import { Harness } from './harness.mjs'
import { Api, ownerOf, PASSWORD, Server, until } from './server.mjs'

/** More than a page of the API. */
const ROWS = 250
const LOOK_MS = 3_000

let server
let harness
let organisation
let owner

before(async () => {
  server = await Server.make({ 'sign-up': 'anybody' })
  harness = await Harness.on(server)
  ;({ owner, organisation } = await ownerOf(server))
  for (let from = 0; from < ROWS; from += 50)
    await Promise.all(
      Array.from({ length: 50 }, (_, at) =>
        harness.device({ clientId: `device-${from + at}`, keepalive: 0 }),
      ),
    )
})

after(async () => {
  await harness?.close()
  await server?.stop()
})

/** Somebody who may look at the organisation until `leave`. */
async function viewer() {
  const email = 'vera@example.org'
  const { token } = await owner.post(`${organisation}/invitations`, { email, role: 'viewer' })
  const api = new Api(server.url)
  const { user } = await api.post('/sign-up', { email, password: PASSWORD, name: 'Vera', token })
  return { api, leave: () => owner.ask('DELETE', `${organisation}/members/${user.id}`) }
}

test('clients: the reader loses the membership before the second page has come', async () => {
  const { api, leave } = await viewer()
  const gate = await Gate.before(server.url)
  const { tab, context, complaints } = await harness.visitor(api, { url: gate.url })
  let asked = 0
  let isHeld = true
  gate.rule = (pathname, searchParams) => {
    const isNext = pathname.endsWith('/clients') && searchParams.has('cursor')
    if (isNext) asked += 1
    return isNext && isHeld ? 'hold' : 'pass'
  }
  await tab.goto(`${gate.url}/b/default/clients`)
  await tab.getByText('200 or more connected').waitFor()
  await until('the second page to be asked for', () => asked > 0)
  await leave()
  isHeld = false
  gate.endHeld()
  await tab.getByText('The list has the first 200 clients. The others could not be loaded:').waitFor()
  const before = asked
  await tab.waitForTimeout(LOOK_MS)
  assert.ok(asked - before <= 1, `the page asked ${asked - before} times more in ${LOOK_MS} ms`)
  assert.ok(await tab.getByRole('row', { name: /device-1\b/ }).isVisible())
  gate.close()
  await context.close()
  assert.deepEqual(complaints, [])
})
