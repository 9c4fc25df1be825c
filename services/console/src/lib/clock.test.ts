import { afterEach, expect, test, vi } from 'vitest'
import { hearClock, now } from './clock'

const NOON = Date.parse('2026-11-28T12:00:00Z')
const date = 'Sat, 28 Nov 2026 12:00:00 GMT'

afterEach(() => {
  hearClock(date, 0, NOON)
  vi.useRealTimers()
})

test('a browser whose clock is a day behind or ahead has the time of the server', () => {
  vi.useFakeTimers()
  for (const wrong of [-86_400_000, 86_400_000]) {
    vi.setSystemTime(NOON + wrong)
    hearClock(date, 40)
    expect(Math.abs(now() - NOON)).toBeLessThan(1_000)
  }
})

test('a small difference is that of the way, and a slow answer says little', () => {
  vi.useFakeTimers()
  vi.setSystemTime(NOON + 900)
  hearClock(date, 100)
  expect(now()).toBe(NOON + 900)
  vi.setSystemTime(NOON + 8_000)
  hearClock(date, 8_000)
  expect(now()).toBe(NOON + 8_000)
})

test('an answer without a date changes nothing', () => {
  vi.useFakeTimers()
  vi.setSystemTime(NOON + 86_400_000)
  hearClock(date, 0)
  hearClock(null, 0)
  expect(Math.abs(now() - NOON)).toBeLessThan(1_000)
})
