// A broker of the server's settings: the console says that its credentials are refused, and puts them in use.

import assert from 'node:assert/strict'
import { once } from 'node:events'
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
  for (const page of ['settings', 'access?tab=bans', 'connect']) {
    await tab.goto(new URL(`/b/default/${page}`, server.url).href)
    await notice.waitFor()
    if (page === 'settings') await tab.getByText('with the server itself', { exact: true }).waitFor()
  }

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

test('no save ends the settings of the server without the question that names what is lost', async () => {
  const open = await Server.make()
  const visitors = await Harness.on(open)
  try {
    const person = new Api(open.url)
    await person.signUp('Bea', open.link('/sign-up'))
    const device = await visitors.device({ clientId: 'pump-7' })
    const { tab, complaints } = await visitors.visitor(person)
    const question = tab.getByRole('dialog', { name: /^Use credentials at / })
    const at = (page) => tab.goto(new URL(`/b/default/${page}`, open.url).href)
    const names = async (...texts) => {
      for (const text of texts) await question.getByText(text).waitFor()
      await question.getByRole('button', { name: 'Cancel' }).click()
      await question.waitFor({ state: 'detached' })
    }

    await at('connect')
    await tab.getByText('The snippet works as pasted').waitFor()
    await tab.getByRole('button', { name: 'Use credentials' }).click()
    await names(
      '1 connected client is disconnected: Not authorized',
      'may publish and subscribe to everything',
    )
    await at('access?tab=methods')
    await tab.getByText('Authentication, not in force').waitFor()
    await tab
      .getByLabel(/anonymous/i)
      .first()
      .check({ force: true })
    await tab.getByRole('button', { name: 'Save authentication' }).click()
    await names(
      '1 connected client is disconnected',
      /^From then on the server refuses users of its password file/,
    )

    await at('settings')
    await tab.getByLabel('Connections').fill('12')
    await tab.getByRole('button', { name: 'Save limits' }).click()
    await tab.getByText('The limits were saved.').waitFor()
    await tab.getByText('does not use credentials yet').waitFor()

    await at('access?tab=rules')
    await tab.getByRole('button', { name: 'Add rule' }).click()
    await tab.getByRole('button', { name: 'Save rules' }).click()
    await question.getByText('1 connected client is disconnected').waitFor()
    assert.ok(device.connected, 'nothing is lost before the answer')
    const lost = once(device, 'disconnect')
    await question.getByRole('button', { name: 'Save rules' }).click()
    await tab.getByText('The rules were saved.').waitFor()
    assert.equal((await lost)[0].reasonCode, 0x87)
    await tab.getByText('does not use credentials yet').waitFor({ state: 'detached' })
    assert.deepEqual(complaints, [])
  } finally {
    await visitors.close()
    await open.stop()
  }
})

test('the overview counts devices, and names pages of the console beside them', async () => {
  const { tab, context } = await harness.visitor(owner)
  const live = await context.newPage()
  await live.goto(new URL('/b/default/live', server.url).href)
  await live.getByText(/Connected as console-/).waitFor()
  await tab.goto(new URL('/b/default', server.url).href)
  // The overview listens too.
  await tab.getByText('3 with 2 pages of this console').waitFor()
  await tab.getByRole('link', { name: '1 connection', exact: true }).waitFor()
  await context.close()
})
