// A server that goes away while somebody fills in a form: nothing typed is lost, and the form is sent after the restart.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Harness } from './harness.mjs'
import { ownerOf, Server } from './server.mjs'

let server
let harness
let api
let broker

before(async () => {
  server = await Server.make({ 'sign-up': 'anybody' })
  harness = await Harness.on(server)
  ;({ owner: api, broker } = await ownerOf(server))
})

after(async () => {
  await harness?.close()
  await server?.stop()
})

const AWAY = /The server stopped answering/

/** Forms: where they are, what is typed into which field, the button that sends them, and what shows that they were sent. */
const forms = () => [
  ['/brokers/new', { Name: 'Plant 8' }, 'Create broker', (tab) => tab.getByText('Waiting for a device')],
  [
    `/b/${broker}/access?edit=%2B`,
    { User: 'pump-7' },
    'Create credential',
    (tab) => tab.getByTestId('secret').first(),
  ],
  [
    `/b/${broker}/access?tab=bans&edit=%2B`,
    { 'Client id': 'storm', Reason: 'reconnects all the time' },
    'Add ban',
    (tab) => tab.getByRole('cell', { name: 'reconnects all the time' }),
  ],
  [
    `/b/${broker}/settings`,
    { Name: 'Plant seven' },
    'Rename',
    (tab) => tab.getByText('The broker was renamed.'),
  ],
  // Three that are not sent here.
  [`/b/${broker}/webhooks?edit=%2B`, { Name: 'orders', URL: 'https://example.org/hook' }],
  [`/b/${broker}/live`, { Topic: 'a/b', Payload: '{"celsius":21}' }],
  [`/b/${broker}/messages`, { Topic: 'a/b' }],
]

test('a server that goes away under open forms: the bar comes and goes, and nothing typed is lost', async () => {
  const open = await Promise.all(
    forms().map(async ([path, typed, verb, sent]) => {
      const { tab, context, complaints } = await harness.visitor(api)
      await tab.goto(`${server.url}${path}`)
      const fields = Object.entries(typed).map(([label, value]) => [
        tab.getByRole('textbox', { name: label, exact: true }),
        value,
      ])
      for (const [field, value] of fields) await field.fill(value)
      return { path, tab, context, complaints, fields, verb, sent }
    }),
  )
  const holds = async ({ path, fields }, when) => {
    for (const [field, value] of fields) assert.equal(await field.inputValue(), value, `${path} ${when}`)
  }

  await server.kill()
  for (const form of open) {
    const { tab, verb } = form
    await tab.getByText(AWAY).waitFor()
    if (verb) {
      await tab.locator('button[type=submit]', { hasText: verb }).click()
      await tab.getByText('Your input is still here. Try again when the server answers.').waitFor()
    }
    await holds(form, 'while the server is away')
  }

  await server.start()
  for (const form of open) {
    const { tab, context, complaints, verb, sent } = form
    await tab.getByText(AWAY).waitFor({ state: 'detached' })
    await holds(form, 'after the restart')
    if (verb) {
      await tab.locator('button[type=submit]', { hasText: verb }).click()
      await sent(tab).waitFor()
    }
    assert.deepEqual(complaints, [], form.path)
    await context.close()
  }
})
