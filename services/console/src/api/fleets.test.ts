import { afterEach, expect, test, vi } from 'vitest'
import { fakeServer } from './fakeServer'
import { createBatch, createClaimToken } from './fleets'
import { Once } from './once'

afterEach(() => vi.unstubAllGlobals())

const path = { organisation: 'o-1', broker: 'b-1' }
const lost = new TypeError('network error')

test('a batch whose answer was lost is repeated with its own key', async () => {
  const items = [{ user: 'pump-1', secret: 'mr_1' }]
  const sent = fakeServer(lost, { status: 201, body: { items } })
  const { ask } = new Once(createBatch)
  const batch = { path, batch: { devices: [{ user: 'pump-1' }], rules: [] } }
  await expect(ask(batch)).rejects.toThrow()
  expect(await ask(batch)).toEqual(items)
  expect(sent.map((one) => one.path)).toEqual(
    Array(2).fill('/api/v1/organisations/o-1/brokers/b-1/credential-batches'),
  )
  expect(sent[0]?.key).toMatch(/^[0-9a-f-]{36}$/)
  expect(sent[1]).toEqual(sent[0])
})

test('a claim token whose answer was lost is repeated with its own key, another one has another', async () => {
  const sent = fakeServer(lost, { status: 201, body: { secret: 'mlc_1' } })
  const { ask } = new Once(createClaimToken)
  const token = { name: 'line 2', user_prefix: 'pump-', uses_max: 5, expires_at_ms: 1, rules: [] }
  await expect(ask({ path, token })).rejects.toThrow()
  await ask({ path, token })
  await ask({ path, token: { ...token, name: 'line 3' } })
  expect(sent[1]).toEqual(sent[0])
  expect(sent[2]?.key).not.toBe(sent[0]?.key)
})
