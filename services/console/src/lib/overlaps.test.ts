import { expect, test } from 'vitest'
import { overlapsOf, previousUntil, type Way } from './overlaps'

const NOW = 1_800_000_000_000
const HOUR_MS = 3_600_000

test.each<[Way | null, number, string[]]>([
  ['previous', NOW + 1, ['0', '3600', '86400', '604800', '2592000']],
  // A password that is kept never ends sooner.
  ['previous', NOW + 2 * HOUR_MS, ['0', '86400', '604800', '2592000']],
  ['previous', NOW + 720 * HOUR_MS, ['0']],
  ['current', NOW + 2 * HOUR_MS, ['3600', '86400', '604800', '2592000']],
  ['leaked', NOW + 2 * HOUR_MS, []],
  [null, NOW + 2 * HOUR_MS, []],
])('%s with an end at %d has the overlaps %j', (way, until, values) => {
  expect(overlapsOf(way, until, NOW).map(({ value }) => value)).toEqual(values)
})

test.each([
  [null, null],
  [undefined, null],
  [NOW, null],
  [NOW + 1, NOW + 1],
])('a previous password with the end %s is valid until %s', (previous_secret_until_ms, until) => {
  expect(previousUntil({ previous_secret_until_ms }, NOW)).toBe(until)
})
