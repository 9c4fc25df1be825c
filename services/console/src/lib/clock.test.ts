import { afterEach, expect, test, vi } from 'vitest'
import { learnClock, now } from './clock'

const NOON = Date.parse('2026-11-28T12:00:00Z')
const date = 'Sat, 28 Nov 2026 12:00:00 GMT'

afterEach(() => {
  learnClock(date, 0, NOON)
  vi.useRealTimers()
})

test('a browser whose clock is a day behind or ahead has the time of the server', () => {
  vi.useFakeTimers()
  for (const wrong of [-86_400_000, 86_400_000]) {
    vi.setSystemTime(NOON + wrong)
    learnClock(date, 40)
    expect(Math.abs(now() - NOON)).toBeLessThan(1_000)
  }
})

test('a small difference is that of the way, and a slow answer says little', () => {
  vi.useFakeTimers()
  vi.setSystemTime(NOON + 900)
  learnClock(date, 100)
  expect(now()).toBe(NOON + 900)
  vi.setSystemTime(NOON + 8_000)
  learnClock(date, 8_000)
  expect(now()).toBe(NOON + 8_000)
})

test('a clock that is three seconds behind or ahead is corrected to a tenth of a second, and times do not jump', () => {
  vi.useFakeTimers()
  for (const wrong of [-3_000, 3_000]) {
    const corrections: number[] = []
    for (let at = 0; at < 40; at += 1) {
      // Answers of 30 ms, at all parts of a second.
      const server = NOON + at * 2_730
      vi.setSystemTime(server + wrong)
      learnClock(new Date(server - 15).toUTCString(), 30)
      corrections.push(now() - Date.now())
    }
    expect(Math.abs((corrections.at(-1) ?? 0) + wrong)).toBeLessThan(100)
    const late = corrections.slice(20)
    expect(Math.max(...late) - Math.min(...late)).toBeLessThan(100)
  }
})

test('a clock that is right is left alone', () => {
  vi.useFakeTimers()
  for (let at = 0; at < 40; at += 1) {
    const server = NOON + at * 2_730
    vi.setSystemTime(server)
    learnClock(new Date(server - 15).toUTCString(), 30)
    expect(now()).toBe(server)
  }
})

test('a clock that is set while the page is open is followed', () => {
  vi.useFakeTimers()
  vi.setSystemTime(NOON)
  learnClock(date, 30)
  vi.setSystemTime(NOON - 7_200_000)
  learnClock(date, 30)
  expect(Math.abs(now() - NOON)).toBeLessThan(1_000)
})

test('an answer without a date changes nothing', () => {
  vi.useFakeTimers()
  vi.setSystemTime(NOON + 86_400_000)
  learnClock(date, 0)
  learnClock(null, 0)
  expect(Math.abs(now() - NOON)).toBeLessThan(1_000)
})
