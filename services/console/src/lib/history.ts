// Data of the charts of the past: windows of usage, and incidents counted by reason.

import type { Schemas } from '../api/client'

/** The server removes older incidents. */
export const INCIDENTS_KEPT_MS = 7 * 86_400_000

type Window = Schemas['UsageWindow']
type Used = Schemas['Used']
type HistoryValues = Schemas['HistoryValues']
type Incident = Schemas['Incident']

/** When a broker began to be used, in Unix milliseconds. The broker of a server without accounts has no creation time (0),
 * so its first window with traffic stands for it. */
export function beginOf(createdAt: number, windows: readonly Window[]): number {
  if (createdAt > 0) return createdAt
  const first = windows.find(({ used }) => Object.values(used).some((value) => value > 0))
  return first?.from_ms ?? 0
}

/** Shorter than this, an axis has no room for its labels. */
const SHOWN_S_MIN = 60

/** Seconds that a chart shows: all that was asked for, or what a younger broker has been there for. */
export function shownRange(
  { from, to }: { from: number; to: number },
  since: number,
  now: number,
): [number, number] {
  if (since <= from || since >= to) return [from / 1000, to / 1000]
  return [since / 1000, Math.max(since / 1000 + SHOWN_S_MIN, Math.min(now, to) / 1000)]
}

/** Edges of windows in unix seconds: each one's start, and where the last one ends or is now. A broker's first window begins
 * when it was created. */
export function edgesOf(windows: readonly Window[], since: number, now: number): number[] {
  const last = windows.at(-1)
  if (!last) return []
  const starts = windows.map(
    ({ from_ms, to_ms }) => (to_ms <= since ? from_ms : Math.max(from_ms, since)) / 1000,
  )
  return [...starts, Math.max(Math.min(last.to_ms, now) / 1000, starts.at(-1) ?? 0)]
}

/** A value for each edge; the last one is repeated, so that the step of its window has an end. Null before `since`. */
export function stepsOf(
  windows: readonly Window[],
  since: number,
  value: (used: Used, window: Window) => number,
): (number | null)[] {
  const values = windows.map((window) => (window.to_ms <= since ? null : value(window.used, window)))
  return values.length === 0 ? [] : [...values, values.at(-1) ?? null]
}

/** Numbers of a history for charts. */
export interface Series {
  /** The middle of each step, in unix seconds: its values are averages. */
  times: number[]
  /** The starts of the steps and the end of the last one, in unix seconds. */
  edges: number[]
  /** A number for each step. Null: nobody measured, or there was nothing to measure. */
  of: (value: (values: HistoryValues) => number | null | undefined) => (number | null)[]
  /** A counter of a step as a rate. */
  perSecond: (counter: (values: HistoryValues) => number) => (number | null)[]
}

export function seriesOf({ points, step_ms }: Schemas['MetricsHistory']): Series {
  const starts = points.map(({ from_ms }) => from_ms / 1000)
  const step = step_ms / 1000
  const of: Series['of'] = (value) => points.map(({ values }) => (values ? (value(values) ?? null) : null))
  return {
    times: starts.map((start) => start + step / 2),
    edges: starts.length === 0 ? [] : [...starts, (starts.at(-1) ?? 0) + step],
    of,
    perSecond: (counter) =>
      of((values) => (values.measured_ms > 0 ? (counter(values) * 1000) / values.measured_ms : null)),
  }
}

/** How many incidents fell into each step, between an edge and the next. Null before `since`, when nobody counted. */
export function countsOf(
  incidents: readonly Incident[],
  edges: readonly number[],
  since: number,
): (number | null)[] {
  const starts = edges.slice(0, -1)
  const end = (edges.at(-1) ?? 0) * 1000
  const counts: (number | null)[] = starts.map((start) => (start * 1000 < since ? null : 0))
  for (const { last_at_ms, count } of incidents) {
    const at = starts.findLastIndex((start) => start * 1000 <= last_at_ms)
    if (at >= 0 && last_at_ms < end) counts[at] = (counts[at] ?? 0) + count
  }
  return counts
}

export interface Reason {
  kind: Incident['kind']
  reason: string
  count: number
  lastAt: number
}

/** Incidents since a time by reason, the most frequent first. */
export function reasonsOf(incidents: readonly Incident[], since: number): Reason[] {
  const found = new Map<string, Reason>()
  for (const { kind, reason, count, last_at_ms } of incidents) {
    if (last_at_ms < since) continue
    const key = `${kind} ${reason}`
    const before = found.get(key)
    found.set(key, {
      kind,
      reason,
      count: (before?.count ?? 0) + count,
      lastAt: Math.max(before?.lastAt ?? 0, last_at_ms),
    })
  }
  return [...found.values()].toSorted((a, b) => b.count - a.count)
}
