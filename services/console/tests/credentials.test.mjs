// Credentials with all that the API has: SCRAM, a client id, an expiry, a chosen password, rules from the beginning.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import mqtt from 'mqtt'
import { answers, METHOD, Scram } from '../../millrace/tests/clients/scram.mjs'
import { until } from './server.mjs'
import { stage } from './stage.mjs'

const { server, harness, owner, broker, at } = await stage()

const on = (path, act) => harness.on(`${server.url}/b/${broker}${path}`, act, { api: owner })
const click = (place, name) => place.getByRole('button', { name, exact: true }).click()

/** Whether the server admits a client that proves `password` by SCRAM. */
async function proves(user, password) {
  const scram = new Scram(user, password)
  const client = mqtt.connect(`mqtt://127.0.0.1:${server.ports.mqtt}`, {
    protocolVersion: 5,
    reconnectPeriod: 0,
    clientId: user,
    // It names the broker. The exchange itself has the bare name.
    username: `${broker}/${user}`,
    properties: { authenticationMethod: METHOD, authenticationData: scram.first() },
  })
  client.handleAuth = answers(scram)
  try {
    return await Promise.race([
      once(client, 'connect').then(() => true),
      once(client, 'close').then(() => false),
    ])
  } catch {
    return false
  } finally {
    client.end(true)
  }
}

test('SCRAM: a client proves the password of a new credential, and of a rotated one', async () => {
  await on('/access', async (tab) => {
    const drawer = tab.getByRole('dialog')
    await click(tab, 'Create credential')
    await drawer.getByLabel('User').fill('pump-1')
    await drawer.getByLabel('SCRAM-SHA-256').press('Space')
    await click(drawer, 'Create credential')
    const first = await drawer.getByTestId('secret').textContent()
    await click(drawer, 'I have stored it')
    await until('the first proof', () => proves('pump-1', first))

    await click(tab, 'pump-1')
    assert.ok(await drawer.getByLabel('SCRAM-SHA-256').isChecked(), 'a rotation keeps SCRAM')
    await drawer.getByLabel('SCRAM-SHA-256').press('Space')
    await click(drawer, 'Rotate password')
    const second = await drawer.getByTestId('secret').textContent()
    await click(drawer, 'I have stored it')
    assert.equal((await owner.get(`${at}/credentials/pump-1`)).scram, false)
    await harness.device({ clientId: 'pump-1', username: `${broker}/pump-1`, password: second })
    assert.equal(await proves('pump-1', second), false)
  })
})

const choose = (drawer, way) => drawer.getByRole('radio', { name: way }).check()
const LOST = 'The new password was lost: make another one'
const NEXT = 'All devices have the new password: make the next one'

/** Whether the broker admits a device of a credential with this password. */
const admits = (user, password) =>
  harness.device({ clientId: user, username: `${broker}/${user}`, password }).then(
    (client) => client.endAsync().then(() => true),
    () => false,
  )

test('a new password that was lost is replaced by another one, and devices go on with the previous one', async () => {
  const { secret: first } = await owner.post(`${at}/credentials`, { user: 'fan-1' })
  const lost = await owner.post(`${at}/credentials/fan-1/rotate`, { overlap_s: 3600 })
  await on('/access', async (tab) => {
    const drawer = tab.getByRole('dialog')
    await click(tab, 'fan-1')
    const rotate = drawer.getByRole('button', { name: 'Rotate password' })
    await drawer
      .getByText(/The previous password is valid until .*, and devices may still use it\./)
      .waitFor()
    assert.equal(await rotate.isDisabled(), true)
    await choose(drawer, LOST)
    const overlap = drawer.getByRole('combobox', { name: 'The previous password stays valid' })
    assert.equal(await overlap.inputValue(), 'as long as before')
    await rotate.click()
    const third = await drawer.getByTestId('secret').textContent()
    await click(drawer, 'I have stored it')
    await until('the other new password to be admitted', () => admits('fan-1', third))
    assert.equal(await admits('fan-1', first), true)
    await until('the lost password to be refused', async () => !(await admits('fan-1', lost.secret)))
    const { previous_secret_until_ms: end } = await owner.get(`${at}/credentials/fan-1`)
    assert.equal(end, lost.previous_secret_until_ms)

    // Once all devices have it, the next rotation keeps it instead.
    await click(tab, 'fan-1')
    await choose(drawer, NEXT)
    await rotate.click()
    const fourth = await drawer.getByTestId('secret').textContent()
    await click(drawer, 'I have stored it')
    await until('the next password to be admitted', () => admits('fan-1', fourth))
    assert.equal(await admits('fan-1', third), true)
    await until('the first password to be refused', async () => !(await admits('fan-1', first)))
  })
})

test('a page that was read before a rotation elsewhere offers the choice once the server refuses', async () => {
  await owner.post(`${at}/credentials`, { user: 'fan-2' })
  await on('/access', async (tab) => {
    const drawer = tab.getByRole('dialog')
    await click(tab, 'fan-2')
    await drawer.getByRole('combobox', { name: 'The old password stays valid' }).waitFor()
    const { previous_secret_until_ms: end } = await owner.post(`${at}/credentials/fan-2/rotate`, {
      overlap_s: 3600,
    })
    await click(drawer, 'Rotate password')
    await drawer
      .getByText('The password was rotated, or its overlap ended, since this page was read.')
      .waitFor()
    await choose(drawer, LOST)
    await drawer.getByRole('combobox', { name: 'The previous password stays valid' }).click()
    await tab.getByRole('option', { name: 'one day from now' }).click()
    await click(drawer, 'Rotate password')
    await drawer.getByTestId('secret').waitFor()
    await click(drawer, 'I have stored it')
    const rotated = await owner.get(`${at}/credentials/fan-2`)
    assert.ok(rotated.previous_secret_until_ms > end + 80_000_000, JSON.stringify(rotated))
  })
})

test('a credential with a client id, an end, a chosen password and rules; then another client id', async () => {
  await on('/access', async (tab) => {
    const drawer = tab.getByRole('dialog')
    await click(tab, 'Create credential')
    await drawer.getByLabel('User').fill('valve-1')
    await click(drawer, 'More')
    await drawer.getByLabel('Client id').fill('valve-1')
    await drawer.getByLabel('Expires').fill('2020-01-01T12:00')
    await drawer.getByRole('textbox', { name: 'Password' }).fill('the valve of hall 7')
    await click(drawer, 'Add rule')
    await click(drawer, 'Create credential')
    await drawer.getByText('is over already').waitFor()
    await drawer.getByLabel('Expires').fill('2099-01-01T12:00')
    await click(drawer, 'Create credential')
    await drawer.getByText('It has the password that you chose.').waitFor()
    await click(drawer, 'Done')
    const made = await owner.get(`${at}/credentials/valve-1`)
    assert.equal(made.client_id, 'valve-1')
    assert.equal(made.rules.length, 1)
    assert.equal(new Date(made.expires_at_ms).getFullYear(), 2099)
    const device = (clientId) =>
      harness.device({ clientId, username: `${broker}/valve-1`, password: 'the valve of hall 7' })
    await until('the client to be admitted', () => device('valve-1').catch(() => null))
    await assert.rejects(device('valve-2'))

    await click(tab, 'valve-1')
    await drawer.getByLabel('Client id').fill('valve-2')
    await click(drawer, 'Save credential')
    await tab.getByText('valve-1 was changed.').waitFor()
    const changed = await owner.get(`${at}/credentials/valve-1`)
    assert.deepEqual([changed.client_id, changed.expires_at_ms], ['valve-2', made.expires_at_ms])
    await until('the other client to be admitted', () => device('valve-2').catch(() => null))
  })
})

test('JWT issuers: one with a group, a clock difference and clients that outlive their tokens', async () => {
  await owner.put(`${at}/groups/sensors`, { rules: [] })
  await on('/access?tab=tokens', async (tab) => {
    const drawer = tab.getByRole('dialog')
    await click(tab, 'Add issuer')
    await drawer.getByLabel('Name', { exact: true }).fill('login')
    await drawer.getByText('Shared secret').click()
    await drawer
      .getByRole('textbox', { name: 'Shared secret' })
      .fill('c2VjcmV0IG9mIGF0IGxlYXN0IDMyIGJ5dGVzLCBpbiBCYXNlNjQ=')
    await drawer.getByLabel('The secret is Base64').press('Space')
    await drawer.getByRole('combobox', { name: 'Group' }).click()
    await tab.getByRole('option', { name: 'sensors' }).click()
    await drawer.getByLabel('Tolerated clock difference').fill('5')
    await drawer.getByLabel('Disconnect at expiry').press('Space')
    await click(drawer, 'Save issuer')
    await tab.getByRole('row', { name: /login/ }).waitFor()
    const { group, leeway_s, disconnect_at_expiry, key } = await owner.get(`${at}/jwt-issuers/login`)
    assert.deepEqual(
      { group, leeway_s, disconnect_at_expiry, base64: key.base64 },
      { group: 'sensors', leeway_s: 5, disconnect_at_expiry: false, base64: true },
    )

    await click(tab, 'login')
    const encoding = drawer.getByLabel('The secret is Base64')
    assert.deepEqual([await encoding.isChecked(), await encoding.isDisabled()], [true, true])
    await drawer.getByRole('textbox', { name: 'Shared secret' }).fill('another secret of at least 32 bytes')
    await encoding.press('Space')
    await drawer.getByRole('textbox', { name: 'Shared secret' }).fill('')
    assert.equal(await encoding.isChecked(), true)
    await drawer.getByRole('textbox', { name: 'Shared secret' }).fill('another secret of at least 32 bytes')
    await click(drawer, 'Save issuer')
    await until('the other secret', async () => {
      const { key } = await owner.get(`${at}/jwt-issuers/login`)
      return key.base64 === false
    })
  })
})
