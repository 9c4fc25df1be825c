// A broker of the server's settings: the console says that its credentials are refused, and puts them in use.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Harness } from './harness.mjs'
import { Api, Server, until } from './server.mjs'

let server
let harness
let owner

before(async () => {
  server = await Server.make({ 'allow-anonymous': 'false' })
  harness = await Harness.on(server)
  owner = new Api(server.url)
  await owner.signUp('Ann', server.link('/sign-up'))
})

after(async () => {
  await harness?.close()
  await server?.stop()
})

test('the server refuses credentials of default until a person puts them in use', async () => {
  const { tab, context, complaints } = await harness.visitor(owner)
  const notice = tab.getByText('does not use credentials yet')
  await tab.goto(new URL('/b/default/access', server.url).href)
  await notice.waitFor()
  await tab.goto(new URL('/b/default/connect', server.url).href)
  await notice.waitFor()

  await tab.getByRole('button', { name: 'Create credential' }).click()
  const password = await tab.getByTestId('secret').textContent()
  const device = () => harness.device({ clientId: 'esp32-7', username: 'esp32-7', password })
  await assert.rejects(device(), /Bad User Name or Password/)

  await tab.getByRole('button', { name: 'Use credentials' }).click()
  await tab.getByRole('dialog').getByRole('button', { name: 'Use credentials' }).click()
  await notice.waitFor({ state: 'detached' })
  await until('the credential to count', () => device().catch(() => null))
  await tab.getByText('esp32-7 is connected').waitFor()
  assert.deepEqual(complaints, [])
  await context.close()
})

test('the overview counts devices, and names pages of the console beside them', async () => {
  const { tab, context } = await harness.visitor(owner)
  const live = await context.newPage()
  await live.goto(new URL('/b/default/live', server.url).href)
  await live.getByText(/Connected as console-/).waitFor()
  await tab.goto(new URL('/b/default', server.url).href)
  // The overview listens too.
  await tab.getByText('and 2 pages of this console').waitFor()
  await tab.getByRole('link', { name: '1', exact: true }).waitFor()
  await context.close()
})
