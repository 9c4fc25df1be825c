// The metrics of a pod, sampled while the page is open.

import { type Bucket, bucketsOf, bucketsSince, quantile, type Sample, total } from '../lib/prometheus'

const LOOKS_MAX = 150
/** Samples further apart than this have a gap between them. */
const GAP_MS = 15_000
/** A 99th percentile is computed over this time, because a single second may have no commit or delivery. */
const TIMED_MS = 60_000

interface Look {
  atMs: number
  connections: number | null
  published: number | null
  commits: Bucket[]
  deliveries: Bucket[]
  storeBytes: number | null
}

/** A pair of what is used and what there is. */
export interface Share {
  used: number
  of: number
}

export interface Numbers {
  connections: (number | null)[]
  /** Messages that clients published, a second. */
  published: (number | null)[]
  /** 99th percentile of the time to commit a message, seconds, of the last minute. */
  commit: (number | null)[]
  /** 99th percentile of the time from reading a message until it is written for its connected subscribers, seconds, of the last
   * minute. Null: none was delivered. */
  deliveryS: number | null
  /** Bytes that wait for the store. */
  waiting: (number | null)[]
  store: { refused: number | null; failures: number | null; stalls: number | null }
  /** Connections without a valid PROXY protocol header. */
  headersRefused: number | null
  pressure: number | null
  memory: Share | null
  disk: Share | null
  files: Share | null
}

let looks: Look[] = []

const share = (used: number | null, of: number | null): Share | null =>
  used === null || !of ? null : { used, of }

function rate(before: Look | undefined, now: Look): number | null {
  if (!before || before.published === null || now.published === null) return null
  const ms = now.atMs - before.atMs
  if (ms <= 0 || ms > GAP_MS || now.published < before.published) return null
  return ((now.published - before.published) * 1000) / ms
}

/** The 99th percentile of the last minute before a look. */
function timeAt(all: readonly Look[], at: number, of: 'commits' | 'deliveries'): number | null {
  const now = all[at]
  if (!now) return null
  const from = all.findLast(({ atMs }, index) => index < at && now.atMs - atMs >= TIMED_MS) ?? all[0]
  return from && from !== now ? quantile(bucketsSince(from[of], now[of]), 0.99) : null
}

/** Adds a look at the metrics, and returns the numbers of all looks. */
export function numbersOf(samples: readonly Sample[], atMs: number): Numbers {
  const sum = (name: string) => total(samples, name)
  const look: Look = {
    atMs,
    connections: sum('millrace_connections_open'),
    published: sum('millrace_messages_received_total'),
    commits: bucketsOf(samples, 'millrace_message_commit_seconds'),
    deliveries: bucketsOf(samples, 'millrace_edge_delivery_seconds'),
    storeBytes: sum('millrace_store_queue_bytes'),
  }
  looks = [...looks.slice(1 - LOOKS_MAX), look]
  const all = looks
  const size = sum('millrace_store_disk_size_bytes')
  const free = sum('millrace_store_disk_free_bytes')
  const byReason = samples.filter(
    ({ name, labels }) => name === 'millrace_connections_refused_total' && labels.reason === 'proxy_header',
  )
  return {
    connections: all.map(({ connections }) => connections),
    published: all.map((one, at) => rate(all[at - 1], one)),
    commit: all.map((_, at) => timeAt(all, at, 'commits')),
    deliveryS: timeAt(all, all.length - 1, 'deliveries'),
    waiting: all.map(({ storeBytes }) => storeBytes),
    store: {
      refused: sum('millrace_store_refused_total'),
      failures: sum('millrace_store_failures_total'),
      stalls: sum('millrace_store_stalls_total'),
    },
    headersRefused: total(byReason, 'millrace_connections_refused_total'),
    pressure: sum('millrace_memory_pressure'),
    memory: share(sum('process_resident_memory_bytes'), sum('millrace_memory_budget_bytes')),
    disk: size === null || free === null ? null : share(size - free, size),
    files: share(sum('process_open_fds'), sum('process_max_fds')),
  }
}
