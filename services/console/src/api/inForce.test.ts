import { expect, test } from 'vitest'
import { inForceMs } from './inForce'

const DATE = 'Sun, 09 Sep 2001 01:46:40 GMT'

test.each([
  ['two seconds after the answer', { date: DATE, 'millrace-in-force-at-ms': '1000000002000' }, 2_000],
  ['already', { date: DATE, 'millrace-in-force-at-ms': '999999999000' }, 0],
  ['not said', { date: DATE }, null],
  ['without the time of the answer', { 'millrace-in-force-at-ms': '1000000002000' }, null],
])('a change is in force %s', (_, headers, ms) => {
  expect(inForceMs(new Headers(headers as Record<string, string>))).toBe(ms)
})
