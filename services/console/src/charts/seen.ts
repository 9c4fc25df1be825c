// The samples that a tab has received, in the session storage of the tab: a reload keeps the charts.

import type { Schemas } from '../api/client'
import { DROP_REASONS } from '../lib/drops'

type Sample = Schemas['Metrics']

/** Ten minutes, a sample each second: more than the live charts show. */
export const SAMPLES_MAX = 600
/** Brokers whose samples a tab stores. Each takes up to 100 kB of the 5 MB that browsers allow. */
export const BROKERS_MAX = 8
const PREFIX = 'millrace.metrics '
const FIELDS = [
  'at_ms',
  'connections',
  'messages_in',
  'messages_out',
  'bytes_in',
  'bytes_out',
  'dropped',
  'stored_messages',
  'stored_bytes',
] as const
/** The columns from here on: the time to PUBACK and the time to delivery, null while nothing was measured. */
const LATENCIES_AT = FIELDS.length + DROP_REASONS.length
const LATENCIES = ['puback', 'delivery'] as const
const LATENCY = ['messages', 'p50_ms', 'p99_ms'] as const

type Row = (number | null)[]

const rowOf = (sample: Sample): Row => [
  ...FIELDS.map((field) => sample[field]),
  ...DROP_REASONS.map((reason) => sample.drops[reason]),
  ...LATENCIES.flatMap((of) => LATENCY.map((field) => sample[of]?.[field] ?? null)),
]

function sampleOf(row: Row): Sample {
  const named = <T extends string>(names: readonly T[], from: number) =>
    Object.fromEntries(names.map((name, at) => [name, row[from + at]])) as Record<T, number>
  const latency = (from: number) => (row[from] === null ? null : named(LATENCY, from))
  return {
    ...named(FIELDS, 0),
    drops: named(DROP_REASONS, FIELDS.length),
    puback: latency(LATENCIES_AT),
    delivery: latency(LATENCIES_AT + LATENCY.length),
  }
}

type Store = Pick<Storage, 'getItem' | 'setItem' | 'removeItem' | 'key' | 'length'>

/** Null where the browser keeps nothing for this site. */
export function sessionStore(): Store | null {
  try {
    return window.sessionStorage
  } catch {
    return null
  }
}

/** Samples of the last minutes, oldest first. Anything unreadable counts as nothing. */
export function readSeen(store: Store | null, broker: string, now: number): Sample[] {
  let rows: unknown
  try {
    rows = JSON.parse(store?.getItem(PREFIX + broker) ?? '[]')
  } catch {
    return []
  }
  if (!Array.isArray(rows) || !rows.every(isRow)) return []
  const samples = rows.map(sampleOf)
  const isOrdered = samples.every(({ at_ms }, at) => at === 0 || at_ms >= (samples[at - 1]?.at_ms ?? 0))
  return isOrdered ? samples.filter(({ at_ms }) => at_ms > now - SAMPLES_MAX * 1000) : []
}

function isRow(row: unknown): row is Row {
  if (!Array.isArray(row) || row.length !== LATENCIES_AT + LATENCIES.length * LATENCY.length) return false
  const latencies = LATENCIES.map((_, at) =>
    row.slice(LATENCIES_AT + at * LATENCY.length).slice(0, LATENCY.length),
  )
  const isLatency = (of: unknown[]) => of.every(Number.isFinite) || of.every((one) => one === null)
  return row.slice(0, LATENCIES_AT).every(Number.isFinite) && latencies.every(isLatency)
}

/** Stores the samples of the brokers with the latest ones, `BROKERS_MAX` at most, and removes those of others. */
export function writeSeen(store: Store | null, seen: ReadonlyMap<string, readonly Sample[]>) {
  if (!store) return
  const lastAt = ([, samples]: [string, readonly Sample[]]) => samples.at(-1)?.at_ms ?? 0
  const full = [...seen].filter(([, samples]) => samples.length > 0)
  const latest = full.toSorted((one, other) => lastAt(other) - lastAt(one)).slice(0, BROKERS_MAX)
  const names = new Set(latest.map(([broker]) => PREFIX + broker))
  const others = storedNames(store).filter((name) => !names.has(name))
  for (const name of others.slice(BROKERS_MAX - names.size)) store.removeItem(name)
  try {
    for (const [broker, samples] of latest) {
      const rows = samples.slice(-SAMPLES_MAX).map(rowOf)
      store.setItem(PREFIX + broker, JSON.stringify(rows))
    }
  } catch {
    // The storage is full. The charts begin anew after a reload.
  }
}

export function forgetSeen(store: Store | null) {
  if (store) for (const name of storedNames(store)) store.removeItem(name)
}

const storedNames = (store: Store): string[] =>
  Array.from({ length: store.length }, (_, at) => store.key(at) ?? '').filter((name) =>
    name.startsWith(PREFIX),
  )
