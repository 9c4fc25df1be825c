import { expect, test } from 'vitest'
import { BROKERS_MAX, forgetSeen, readSeen, SAMPLES_MAX, writeSeen } from './seen'

class FakeStorage {
  items = new Map<string, string>()
  get length() {
    return this.items.size
  }
  key = (at: number) => [...this.items.keys()][at] ?? null
  getItem = (name: string) => this.items.get(name) ?? null
  setItem = (name: string, value: string) => void this.items.set(name, value)
  removeItem = (name: string) => void this.items.delete(name)
}

const NOW = 1_800_000_000_000
const sample = (at_ms: number, connections = 1) => ({
  at_ms,
  connections,
  messages_in: 2,
  messages_out: 3,
  bytes_in: 4,
  bytes_out: 5,
  dropped: 6,
  stored_messages: 7,
  stored_bytes: 8,
  drops: { busy_socket: 1, queue_full: 2, queue_memory: 0, expired: 3, packet_too_large: 0, stored_limit: 4 },
  puback: connections === 1 ? null : { messages: 5, p50_ms: 0.5, p99_ms: 2.5 },
  delivery: connections === 7 ? null : { messages: 1, p50_ms: 0.05, p99_ms: 0.1 },
})
const zeros = (at_ms: number, ...latencies: unknown[]) =>
  JSON.stringify([at_ms, ...Array(14).fill(0), ...latencies])
const none = [null, null, null]

test('what was written is read, but for samples that no chart shows any more', () => {
  const store = new FakeStorage()
  const old = sample(NOW - SAMPLES_MAX * 1000 - 1)
  writeSeen(store, new Map([['plant', [old, sample(NOW - 1000, 7), sample(NOW)]]]))
  expect(readSeen(store, 'plant', NOW)).toEqual([sample(NOW - 1000, 7), sample(NOW)])
  expect(readSeen(store, 'other', NOW)).toEqual([])
  expect(readSeen(null, 'plant', NOW)).toEqual([])
})

test.each([
  '{',
  '{}',
  '[1]',
  '[[1,2]]',
  `[${zeros(NOW, 0, 0, null, ...none)}]`,
  `[${zeros(NOW, ...none, 0, null, 0)}]`,
  `[${zeros(NOW, 0, 0, 0)}]`,
  `[${zeros(NOW, null, null, ...none)}]`,
  `[${zeros(NOW, 0, 0, 0, ...none)},${zeros(NOW - 1, 0, 0, 0, ...none)}]`,
])('unreadable content is nothing: %s', (text) => {
  const store = new FakeStorage()
  store.setItem('millrace.metrics plant', text)
  expect(readSeen(store, 'plant', NOW)).toEqual([])
})

test('samples and brokers are bounded, and what others store stays', () => {
  const store = new FakeStorage()
  store.setItem('theme', 'dark')
  const many = Array.from({ length: SAMPLES_MAX + 5 }, (_, at) => sample(NOW + at))
  const seen = new Map(Array.from({ length: BROKERS_MAX + 1 }, (_, at) => [`b${at}`, [sample(NOW + at)]]))
  writeSeen(store, seen)
  expect(store.length).toBe(BROKERS_MAX + 1)
  expect(readSeen(store, 'b0', NOW)).toEqual([])
  writeSeen(store, new Map([['plant', many]]))
  // Brokers of which this page has seen nothing stay, as far as there is room.
  expect(store.length).toBe(BROKERS_MAX + 1)
  expect(readSeen(store, 'plant', NOW)).toEqual(many.slice(5))
  forgetSeen(store)
  expect([...store.items.keys()]).toEqual(['theme'])
})

test('a full storage is no error', () => {
  const store = new FakeStorage()
  store.setItem = () => {
    throw new Error('QuotaExceededError')
  }
  writeSeen(store, new Map([['plant', [sample(NOW)]]]))
  expect(store.length).toBe(0)
})
