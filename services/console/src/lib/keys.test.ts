import { expect, test } from 'vitest'
import { absolute } from './format'
import { keysText, overlapUntil } from './keys'

const NOW = 1_800_000_000_000
const LATER = NOW + 3_600_000

test.each([
  ['without a key', { key_number: null }, 'no key'],
  ['with one key', { key_number: 2, previous_key_number: null }, 'key 2'],
  [
    'in an overlap',
    { key_number: 3, previous_key_number: 2, previous_key_until_ms: LATER },
    `keys 3 and 2 until ${absolute(LATER)}, then by key 3 alone`,
  ],
  ['after an overlap', { key_number: 3, previous_key_number: 2, previous_key_until_ms: NOW }, 'key 3'],
  ['with the first key', { key_number: 0 }, 'key 0'],
])('%s, requests are signed by %s', (_, keys, said) => {
  expect(keysText(keys, NOW).signs).toBe(said)
})

test.each([
  [[], 'no key'],
  [[2], 'key 2'],
  [[3, 2], 'keys 3 and 2'],
])('an attempt that %j signed', (signed_by, said) => {
  expect(keysText({ signed_by }, NOW).lastAttempt).toBe(said)
})

test.each([
  [{ key_number: 2 }, null],
  [{ key_number: 3, previous_key_number: 2, previous_key_until_ms: LATER }, LATER],
  [{ key_number: 3, previous_key_number: 2, previous_key_until_ms: NOW }, null],
])('the previous key of %j signs until %j', (keys, until) => {
  expect(overlapUntil(keys, NOW)).toBe(until)
})
