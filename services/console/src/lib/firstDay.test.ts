import { expect, test } from 'vitest'
import { isFirstDay } from './firstDay'

test('a broker is new for a day, and one without a time of creation always', () => {
  const now = Date.parse('2026-11-28T03:00:00Z')
  expect(isFirstDay(now - 3_600_000, now)).toBe(true)
  expect(isFirstDay(now - 2 * 86_400_000, now)).toBe(false)
  expect(isFirstDay(0, now)).toBe(true)
})
