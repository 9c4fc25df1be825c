import { expect, test } from 'vitest'
import { amountOf, costOf } from './prices'

const used = {
  bytes_in: 1000,
  bytes_out: 500,
  connected_session_minutes: 2_000_000,
  messages_delivered: 0,
  messages_in: 3_000_000,
  stored_byte_hours: 0,
  stored_session_minutes: 0,
}

test('a million units cost their price, and bytes are those of both directions', () => {
  expect(costOf(used, { unit: 'messages_in', micros_per_million: 1_000_000 })).toBe(3_000_000)
  expect(costOf(used, { unit: 'connected_session_minutes', micros_per_million: 20_000 })).toBe(40_000)
  expect(amountOf(used, 'bytes')).toBe(1500)
  expect(amountOf(used, 'unknown')).toBe(0)
})
