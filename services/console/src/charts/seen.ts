// The samples that a tab has received, in the session storage of the tab: a reload keeps the charts.

import type { Schemas } from '../api/client'

type Sample = Schemas['Metrics']

/** Half an hour, a sample each second: as much as the charts show. */
export const SAMPLES_MAX = 1800
/** Brokers whose samples a tab stores. Each takes up to 300 kB of the 5 MB that browsers allow. */
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
] as const

type Store = Pick<Storage, 'getItem' | 'setItem' | 'removeItem' | 'key' | 'length'>

/** Null where the browser keeps nothing for this site. */
export function sessionStore(): Store | null {
  try {
    return window.sessionStorage
  } catch {
    return null
  }
}

/** Samples of the last half hour, oldest first. Anything unreadable counts as nothing. */
export function readSeen(store: Store | null, broker: string, now: number): Sample[] {
  let rows: unknown
  try {
    rows = JSON.parse(store?.getItem(PREFIX + broker) ?? '[]')
  } catch {
    return []
  }
  if (!Array.isArray(rows) || !rows.every(isRow)) return []
  const samples = rows.map((row) => Object.fromEntries(FIELDS.map((field, at) => [field, row[at]])) as Sample)
  const isOrdered = samples.every(({ at_ms }, at) => at === 0 || at_ms >= (samples[at - 1]?.at_ms ?? 0))
  return isOrdered ? samples.filter(({ at_ms }) => at_ms > now - SAMPLES_MAX * 1000) : []
}

const isRow = (row: unknown): row is number[] =>
  Array.isArray(row) && row.length === FIELDS.length && row.every(Number.isFinite)

/** Stores the samples of brokers. When a tab has seen more than `BROKERS_MAX` brokers, some are left out. */
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
      const rows = samples.slice(-SAMPLES_MAX).map((sample) => FIELDS.map((field) => sample[field]))
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
