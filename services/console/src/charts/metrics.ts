// The numbers of a broker, second by second, while somebody looks. They stay when the page changes or is loaded again.

import { useSyncExternalStore } from 'react'
import type { BrokerPath } from '../api/brokers'
import type { Schemas } from '../api/client'
import { answered, probe } from '../api/link'
import { now } from '../lib/clock'
import { forgetSeen, readSeen, SAMPLES_MAX, sessionStore, writeSeen } from './seen'

export type Metrics = Schemas['Metrics']

const REOPEN_MS = 2000

export interface Live {
  /** Oldest first. */
  samples: readonly Metrics[]
  version: number
}

class Feed {
  live: Live
  #url: string
  #listeners = new Set<() => void>()
  #source: EventSource | undefined
  #reopen: ReturnType<typeof setTimeout> | undefined

  constructor({ organisation, broker }: BrokerPath) {
    this.#url = `/api/v1/organisations/${organisation}/brokers/${encodeURIComponent(broker)}/metrics/stream`
    this.live = { samples: readSeen(sessionStore(), broker, now()), version: 0 }
  }

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener)
    if (this.#listeners.size === 1) {
      document.addEventListener('visibilitychange', this.#look)
      this.#look()
    }
    return () => {
      this.#listeners.delete(listener)
      if (this.#listeners.size > 0) return
      document.removeEventListener('visibilitychange', this.#look)
      this.#close()
    }
  }

  read = () => this.live

  /** A browser has six connections to a server; a page that nobody sees gives its one back. */
  #look = () => {
    if (document.visibilityState === 'hidden') return this.#close()
    if (!this.#source) this.#open()
  }

  #open = () => {
    this.#source = new EventSource(this.#url)
    this.#source.onmessage = ({ data }) => {
      answered()
      this.#add(JSON.parse(data) as Metrics)
    }
    this.#source.onerror = () => {
      this.#close()
      this.#reopen = setTimeout(this.#open, REOPEN_MS)
      // A small request finds out whether the server is unreachable or only the stream has ended.
      void probe()
    }
  }

  #close = () => {
    clearTimeout(this.#reopen)
    this.#source?.close()
    this.#source = undefined
  }

  #add(sample: Metrics) {
    const seen = this.live.samples
    // A chart needs times that rise. After the server's clock was set back, it begins anew.
    const before = (seen.at(-1)?.at_ms ?? 0) <= sample.at_ms ? seen : []
    const samples = [...(before.length >= SAMPLES_MAX ? before.slice(1) : before), sample]
    this.live = { samples, version: this.live.version + 1 }
    for (const listener of this.#listeners) listener()
  }
}

const feeds = new Map<string, Feed>()

function feedOf(path: BrokerPath): Feed {
  if (feeds.size === 0) addEventListener('pagehide', store)
  const feed = feeds.get(path.broker) ?? new Feed(path)
  feeds.set(path.broker, feed)
  return feed
}

function store() {
  const seen = [...feeds].map(([broker, { live }]) => [broker, live.samples] as const)
  writeSeen(sessionStore(), new Map(seen))
}

/** The next person who signs in in this tab finds no numbers of the last one. */
export function forgetMetrics() {
  feeds.clear()
  forgetSeen(sessionStore())
}

export function useLiveMetrics(path: BrokerPath): Live {
  const feed = feedOf(path)
  return useSyncExternalStore(feed.subscribe, feed.read)
}
