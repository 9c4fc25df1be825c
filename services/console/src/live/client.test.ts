import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Problem } from '../api/problem'
import { LiveClient } from './client'

const { connect } = vi.hoisted(() => ({ connect: vi.fn() }))
vi.mock('mqtt', () => ({ default: { connect } }))

beforeEach(() => {
  vi.useFakeTimers()
  connect.mockReturnValue({ on: () => {}, end: () => {} })
})
afterEach(() => {
  vi.useRealTimers()
  connect.mockReset()
})

const OF_API = 'urn:millrace:problem:test'
const NO_CSRF = 'send what signing in answered as csrf_token in the header X-CSRF-Token'

test.each([
  ['an ended session', 401, OF_API, 'sign in again', true],
  ['an ended session that the page knows of', 401, '', 'sign in again', true],
  ['the token of an earlier session', 403, OF_API, NO_CSRF, true],
  ['a proxy', 403, '', 'sign in here', true],
  ['a timeout', 408, '', 'too slow', true],
  ['too many requests', 429, OF_API, 'wait', true],
  ['a role', 403, OF_API, 'your role does not allow this', false],
  ['a broker that is gone', 404, OF_API, 'there is no such broker', false],
])('after a refusal for %s (%i) the page connects again: %j', async (_, status, type, detail, connects) => {
  const client = new LiveClient()
  const newPass = vi.fn().mockRejectedValueOnce(new Problem({ status, type, detail }))
  newPass.mockResolvedValue({ clientId: 'c', username: 'u', password: 'p' })
  await client.open('wss://broker.test', newPass)
  expect(client.status().kind).toBe(connects ? 'lost' : 'refused')
  await vi.advanceTimersByTimeAsync(2_000)
  expect(newPass).toHaveBeenCalledTimes(connects ? 2 : 1)
  if (connects) await vi.waitFor(() => expect(connect).toHaveBeenCalledOnce())
  client.close()
})
