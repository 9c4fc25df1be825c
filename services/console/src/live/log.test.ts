import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { KEPT_BYTES_MAX, KEPT_MAX, MessageLog } from './log'

const message = (topic: string, bytes = 1) => ({
  topic,
  payload: new Uint8Array(bytes),
  qos: 0 as const,
  retain: false,
  properties: undefined,
})

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

test('the newest message stands first, and readers are notified once in 100 ms', () => {
  const log = new MessageLog()
  let notices = 0
  log.subscribe(() => {
    notices += 1
  })
  for (const topic of ['a', 'b', 'c']) log.add(message(topic))
  expect(log.read().messages).toEqual([])
  vi.advanceTimersByTime(100)
  expect(log.read().messages.map(({ topic }) => topic)).toEqual(['c', 'b', 'a'])
  expect(notices).toBe(1)
})

test('rows that come too fast are skipped and counted', () => {
  const log = new MessageLog()
  for (let at = 0; at < 5000; at += 1) log.add(message(`t/${at}`))
  log.flush()
  const { messages, received, skipped } = log.read()
  expect(received).toBe(5000)
  expect(messages[0]?.topic).toBe('t/4999')
  expect(messages.length + skipped).toBe(5000)
})

test('while the rate is shown, a new row is shown as soon as the first one', () => {
  let now = 0
  const log = new MessageLog(() => now)
  const pass = (ms: number) => {
    now += ms
    vi.advanceTimersByTime(ms)
  }
  for (let at = 0; at < 10; at += 1) {
    log.add(message('t'))
    pass(100)
  }
  expect(log.read().perSecond).toBeGreaterThan(0)
  log.add(message('next'))
  pass(100)
  expect(log.read().messages[0]?.topic).toBe('next')
})

test('the rate falls to zero by itself', () => {
  let now = 0
  const log = new MessageLog(() => now)
  for (let at = 0; at < 60; at += 1) {
    if (at < 10) log.add(message('t'))
    now += 100
    vi.advanceTimersByTime(100)
  }
  expect(log.read().perSecond).toBe(0)
  expect(vi.getTimerCount()).toBe(0)
})

test('old rows go, by number and by bytes', () => {
  const log = new MessageLog()
  for (let at = 0; at < 3 * KEPT_MAX; at += 1) {
    log.add(message('t'))
    if (at % 100 === 99) log.flush()
  }
  expect(log.read().messages).toHaveLength(KEPT_MAX)
  for (let at = 0; at < 40; at += 1) log.add(message('large', 1024 * 1024))
  log.flush()
  expect(log.read().messages).toHaveLength(KEPT_BYTES_MAX / (1024 * 1024))
})

test('a pause keeps the rows still and counts what it misses', () => {
  const log = new MessageLog()
  log.add(message('before'))
  log.pause(true)
  log.add(message('meanwhile'))
  log.flush()
  expect(log.read()).toMatchObject({ isPaused: true, missed: 1, received: 2 })
  expect(log.read().messages.map(({ topic }) => topic)).toEqual(['before'])
  log.pause(false)
  log.add(message('after'))
  log.flush()
  expect(log.read().messages.map(({ topic }) => topic)).toEqual(['after', 'before'])
})
