// Changes that are taken back: by the button of the note that names them, and by the keyboard.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { Api, until } from './server.mjs'
import { stage } from './stage.mjs'

const { server, harness, owner, organisation, broker, at } = await stage()

const on = (path, act) => harness.on(`${server.url}${path}`, act, { api: owner })

const click = (place, name) => place.getByRole('button', { name, exact: true }).click()

/** Clicks "Undo" in the note with this text, and waits for the note that says that it is done. */
async function undo(tab, note, said) {
  await tab.getByRole('alert').filter({ hasText: note }).getByRole('button', { name: 'Undo' }).click()
  await tab.getByText(said).waitFor()
}

test('a deleted ban, group and client CA come back as they were', async () => {
  const until_ms = Date.now() + 3_600_000
  await owner.put(`${at}/bans/storm`, { address: '192.0.2.0/24', reason: 'reconnects', until_ms })
  await owner.put(`${at}/groups/pumps`, {
    rules: [{ effect: 'allow', action: 'publish', filter: 'up/%c/#' }],
  })
  const key = [
    'req',
    '-x509',
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-subj',
    '/CN=Plant CA',
    '-keyout',
    '/dev/null',
  ]
  const { stdout: pem, status } = spawnSync('openssl', key, { encoding: 'utf8' })
  assert.equal(status, 0, 'openssl makes a certificate')
  await owner.put(`${at}/client-cas/plant`, { pem, user: 'common_name' })
  for (const [tab, kind, noun, name] of [
    ['certificates', 'client-cas', 'client CA', 'plant'],
    ['bans', 'bans', 'ban', 'storm'],
    ['groups', 'groups', 'group', 'pumps'],
  ]) {
    const earlier = await owner.get(`${at}/${kind}/${name}`)
    await on(`/b/${broker}/access?tab=${tab}&edit=${name}`, async (page) => {
      await click(page, `Delete ${noun}`)
      await click(page.getByRole('dialog', { name: `Delete ${name}?` }), `Delete ${noun}`)
      await page.getByText(`${name} was deleted.`).waitFor()
      assert.equal((await owner.get(`${at}/${kind}`)).items.length, 0)
      await undo(page, `${name} was deleted.`, `${name} is back.`)
      await page.getByRole('table').getByRole('row').nth(1).waitFor()
    })
    const { created_at_ms: _, ...now } = await owner.get(`${at}/${kind}/${name}`)
    const { created_at_ms: __, ...before } = earlier
    assert.deepEqual(now, before)
  }
})

test('a lifted ban goes at once, and comes back when the server refuses', async () => {
  await owner.put(`${at}/bans/slow`, { client_id: 'slow' })
  await on(`/b/${broker}/access?tab=bans&edit=slow`, async (tab) => {
    let answer
    const asked = new Promise((resolve) => {
      answer = resolve
    })
    await tab.route('**/bans/slow', async (route) => {
      if (route.request().method() !== 'DELETE') return route.continue()
      await asked
      await route.fulfill({
        status: 503,
        contentType: 'application/problem+json',
        body: JSON.stringify({ type: 'about:blank', title: 'Unavailable', status: 503, detail: 'not now' }),
      })
    })
    await click(tab, 'Delete ban')
    await click(tab.getByRole('dialog', { name: 'Delete slow?' }), 'Delete ban')
    const cell = tab.getByRole('cell', { name: 'client id slow' })
    await cell.waitFor({ state: 'detached' })
    answer()
    await tab.getByText('Not now').waitFor()
    await cell.waitFor()
    await tab.getByText('slow was deleted.').waitFor({ state: 'detached' })
  })
})

test('a role is given back, and Ctrl Z does what the button does', async () => {
  const invited = await owner.post(`${organisation}/invitations`, {
    email: 'bob@example.org',
    role: 'viewer',
  })
  await new Api(server.url).signUp('Bob', invited.token)
  const roleOfBob = async () => {
    const { items } = await owner.get(`${organisation}/members`)
    return items.find(({ name }) => name === 'Bob').role
  }
  await on(organisation.replace('/organisations/', '/org/'), async (tab) => {
    const choose = async (role) => {
      await tab.getByRole('combobox', { name: 'Role of Bob' }).click()
      await tab.getByRole('option', { name: role }).click()
    }
    await choose('Operator')
    await undo(tab, 'Bob is operator now.', 'Bob is viewer again.')
    assert.equal(await roleOfBob(), 'viewer')
    await choose('Operator')
    await tab.getByText('Bob is operator now.').last().waitFor()
    await tab.getByRole('heading', { level: 1 }).click()
    await tab.keyboard.press('Control+z')
    await until('the role to be given back', async () => (await roleOfBob()) === 'viewer')
    // Nothing is left to take back.
    await tab.keyboard.press('Control+z')
    assert.equal(await roleOfBob(), 'viewer')
  })
})

test('a name, limits and rules are as they were', async () => {
  const before = await owner.get(at)
  await on(`/b/${broker}/settings`, async (tab) => {
    const name = tab.getByLabel('Name', { exact: true })
    await name.fill('Plant seven')
    await click(tab, 'Rename')
    await undo(tab, 'The broker was renamed.', `The broker is called ${before.display_name} again.`)
    assert.equal(await name.inputValue(), before.display_name)
    const connections = tab.getByLabel('Connections', { exact: true })
    await connections.fill('12')
    await click(tab, 'Save limits')
    await undo(tab, 'The limits were saved.', 'The limits are as they were.')
    assert.equal(await connections.inputValue(), '')
  })
  const { display_name, limits } = await owner.get(at)
  assert.deepEqual({ display_name, limits }, { display_name: before.display_name, limits: before.limits })
  const rules = (await owner.get(`${at}/access`)).rules ?? []
  await on(`/b/${broker}/access?tab=rules`, async (tab) => {
    await click(tab, 'Add rule')
    await tab
      .getByRole('textbox', { name: /filter/i })
      .last()
      .fill('plant/#')
    await click(tab, 'Save rules')
    await undo(tab, 'The rules were saved.', 'The rules are as they were.')
  })
  assert.deepEqual((await owner.get(`${at}/access`)).rules ?? [], rules)
})

test('rules that somebody has changed since are not taken back', async () => {
  await on(`/b/${broker}/access?tab=rules`, async (tab) => {
    await click(tab, 'Add rule')
    await tab
      .getByRole('textbox', { name: /filter/i })
      .last()
      .fill('mill/#')
    await click(tab, 'Save rules')
    const note = tab.getByRole('alert').filter({ hasText: 'The rules were saved.' })
    await note.waitFor()
    const { rules: _, ...others } = await owner.get(`${at}/access`)
    const theirs = [{ effect: 'deny', action: 'all', filter: 'secret/#' }]
    await owner.put(`${at}/access`, { ...others, rules: theirs }, { 'if-match': '*' })
    await note.getByRole('button', { name: 'Undo' }).click()
    await tab
      .getByText(/changed/)
      .first()
      .waitFor()
    const [rule] = (await owner.get(`${at}/access`)).rules
    assert.equal(rule.filter, 'secret/#')
  })
})

test('a spend cap that was removed is back', async () => {
  await owner.put(`${at}/spend-cap`, { monthly_micros: 25_000_000, action: 'stop' })
  await on(`/b/${broker}/usage`, async (tab) => {
    await click(tab, 'Remove cap')
    await click(tab.getByRole('dialog'), 'Remove cap')
    await undo(tab, 'The spend cap was removed.', 'The spend cap of 25.00 is back.')
    await tab.getByText('0.00 of 25.00').waitFor()
  })
  assert.equal((await owner.get(`${at}/spend-cap`)).monthly_micros, 25_000_000)
})
