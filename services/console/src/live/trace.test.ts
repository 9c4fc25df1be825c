import { expect, test } from 'vitest'
import { isInGroup, isProblem, TRACED_MAX, type Traced, TraceLog, tracedText } from './trace'

const publish: Traced = { at_ms: 1, direction: 'in', kind: 'PUBLISH', topic: 'a/b', qos: 1, packet_id: 7 }

test('the newest event stands first, and old ones go', () => {
  const log = new TraceLog()
  for (let at = 0; at < TRACED_MAX + 3; at += 1) log.add({ ...publish, at_ms: at })
  log.leaveOut(2)
  log.flush()
  const { rows, forgotten, leftOut } = log.read()
  expect([rows.length, rows[0]?.at_ms, forgotten, leftOut]).toEqual([TRACED_MAX, TRACED_MAX + 2, 3, 2])
})

test('a pause keeps the rows still and counts what it misses', () => {
  const log = new TraceLog()
  log.add(publish)
  log.pause(true)
  log.add(publish)
  log.flush()
  expect([log.read().rows.length, log.read().missed]).toEqual([1, 1])
  log.pause(false)
  log.add(publish)
  log.flush()
  expect([log.read().rows.length, log.read().missed]).toEqual([2, 0])
})

test.each<[Traced, boolean]>([
  [publish, false],
  [{ at_ms: 1, direction: 'server', kind: 'dropped', topic: 'a' }, true],
  [{ at_ms: 1, direction: 'out', kind: 'CONNACK', reason_code: 5 }, true],
  [{ at_ms: 1, direction: 'out', kind: 'CONNACK', reason_code: 0 }, false],
  [{ at_ms: 1, direction: 'out', kind: 'PUBACK', reason_code: 16 }, false],
  [{ at_ms: 1, direction: 'out', kind: 'SUBACK', filters: [{ filter: 'a', reason_code: 135 }] }, true],
])('%o is a problem: %s', (event, expected) => {
  expect(isProblem(event)).toBe(expected)
  expect(isInGroup(event, 'problems')).toBe(expected)
})

test('a packet is one line', () => {
  expect(tracedText(publish)).toBe('a/b, QoS 1, packet 7')
  const filters = [{ filter: 'a/#', qos: 2, reason_code: 135 }]
  const answer: Traced = { at_ms: 1, direction: 'out', kind: 'SUBACK', packet_id: 1, filters }
  expect(tracedText(answer)).toBe('a/# QoS 2 → refused (135), packet 1')
})
