import { expect, test } from 'vitest'
import type { Schemas } from '../api/client'
import { beginOf, countsOf, edgesOf, reasonsOf, seriesOf, shownRange, stepsOf } from './history'

const HOUR = 3_600_000
const used = (of: Partial<Schemas['Used']>): Schemas['Used'] => ({
  connected_session_minutes: 0,
  stored_session_minutes: 0,
  messages_in: 0,
  messages_delivered: 0,
  bytes_in: 0,
  bytes_out: 0,
  stored_byte_hours: 0,
  ...of,
})
const window = (at: number, of: Partial<Schemas['Used']> = {}) => ({
  from_ms: at * HOUR,
  to_ms: (at + 1) * HOUR,
  used: used(of),
  cost_micros: 0,
})
const incident = (hours: number, reason: string, count = 1): Schemas['Incident'] => ({
  id: `${hours}`,
  at_ms: hours * HOUR,
  last_at_ms: hours * HOUR,
  count,
  kind: 'publish_refused',
  reason,
})

test('the last window ends now, and before the broker was created there is a gap', () => {
  const windows = [window(0), window(1, { messages_in: 3 }), window(2, { messages_in: 5 })]
  expect(edgesOf(windows, 1.2 * HOUR, 2.5 * HOUR)).toEqual([0, 4320, 7200, 9000])
  expect(stepsOf(windows, 1.2 * HOUR, ({ messages_in }) => messages_in)).toEqual([null, 3, 5, 5])
})

test('in the first hour the chart begins at the creation', () => {
  const since = 167.5 * HOUR
  const now = since + HOUR / 4
  const hour = window(167)
  expect(edgesOf([window(166), hour], since, now)).toEqual([166 * 3600, since / 1000, now / 1000])
  const week = { from: 0, to: 168 * HOUR }
  expect(shownRange(week, since, now)).toEqual([since / 1000, now / 1000])
  expect(shownRange(week, since, since)).toEqual([since / 1000, since / 1000 + 60])
  expect(shownRange(week, -HOUR, now)).toEqual([0, 168 * 3600])
  // A month that was over before the broker was created.
  expect(shownRange(week, 200 * HOUR, 201 * HOUR)).toEqual([0, 168 * 3600])
})

test('a broker without a creation time begins with its first used window', () => {
  const windows = [window(3), window(4, { messages_in: 1 }), window(5)]
  expect(beginOf(0, windows)).toBe(4 * HOUR)
  expect(beginOf(0, [window(3)])).toBe(0)
  expect(beginOf(7, windows)).toBe(7)
})

test('incidents are counted in the step in which they were last seen', () => {
  const incidents = [incident(2.6, 'a', 9), incident(2.5, 'a'), incident(1.5, 'a', 4), incident(-1, 'b')]
  expect(countsOf(incidents, [0, 3600, 7200, 10_800], 0)).toEqual([0, 4, 10])
  expect(countsOf(incidents, [0, 3600, 7200, 10_800], HOUR)).toEqual([null, 4, 10])
  // After the end of the last step.
  expect(countsOf(incidents, [0, 3600, 7200], 0)).toEqual([0, 4])
  expect(countsOf([], [], 0)).toEqual([])
})

test('a step that nobody measured is a gap, and rates count the measured time alone', () => {
  const drops = {
    busy_socket: 0,
    queue_full: 0,
    queue_memory: 0,
    expired: 0,
    packet_too_large: 0,
    stored_limit: 0,
  }
  const values = {
    measured_ms: 30_000,
    connections: 2.5,
    messages_in: 60,
    messages_out: 0,
    bytes_in: 0,
    bytes_out: 0,
    stored_messages: 0,
    stored_bytes: 0,
    drops,
    puback: null,
    delivery: { messages: 3, p50_ms: 0.2, p99_ms: 0.4 },
  }
  const points = [{ from_ms: 0 }, { from_ms: 60_000, values }, { from_ms: 120_000, values: null }]
  const series = seriesOf({ step: 'minute', step_ms: 60_000, points })
  expect(series.times).toEqual([30, 90, 150])
  expect(series.edges).toEqual([0, 60, 120, 180])
  expect(series.of(({ connections }) => connections)).toEqual([null, 2.5, null])
  expect(series.of(({ puback }) => puback?.p99_ms)).toEqual([null, null, null])
  expect(series.of(({ delivery }) => delivery?.p99_ms)).toEqual([null, 0.4, null])
  expect(series.perSecond(({ messages_in }) => messages_in)).toEqual([null, 2, null])
  expect(seriesOf({ step: 'minute', step_ms: 60_000, points: [] }).edges).toEqual([])
})

test('reasons are added up, the most frequent first', () => {
  const incidents = [incident(3, 'a'), incident(2, 'b', 5), incident(1, 'a', 2), incident(0, 'c', 100)]
  expect(reasonsOf(incidents, HOUR)).toMatchObject([
    { reason: 'b', count: 5 },
    { reason: 'a', count: 3, lastAt: 3 * HOUR },
  ])
})
