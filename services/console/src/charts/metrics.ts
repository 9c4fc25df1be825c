// The numbers of a broker, second by second, while somebody looks. They stay when the page changes or is loaded again.

import { useSyncExternalStore } from 'react'
import type { BrokerPath } from '../api/brokers'
import type { Schemas } from '../api/client'
import { readEvents } from '../api/events'
import type { Problem } from '../api/problem'
import { now } from '../lib/clock'
import { forgetSeen, readSeen, SAMPLES_MAX, sessionStore, writeSeen } from './seen'

export type Metrics = Schemas['Metrics']

export interface Live {
  /** Oldest first. */
  samples: readonly Metrics[]
  /** Rises with each sample. */
  version: number
  /** Why the server refuses more samples; null while it does not. */
  refusal: Problem | null
}

class Feed {
  live: Live
  #url: string
  #listeners = new Set<() => void>()
  #close = () => {}

  constructor({ organisation, broker }: BrokerPath) {
    this.#url = `/api/v1/organisations/${organisation}/brokers/${encodeURIComponent(broker)}/metrics/stream`
    this.live = { samples: readSeen(sessionStore(), broker, now()), version: 0, refusal: null }
  }

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener)
    if (this.#listeners.size === 1) {
      this.#close = readEvents(this.#url, {
        onOpen: () => this.#refuse(null),
        onEvent: (_, data) => this.#add(JSON.parse(data) as Metrics),
        onLost: (refusal) => this.#refuse(refusal),
      })
    }
    return () => {
      this.#listeners.delete(listener)
      if (this.#listeners.size === 0) this.#close()
    }
  }

  read = () => this.live

  #refuse(refusal: Problem | null) {
    if (refusal !== this.live.refusal) this.#set({ ...this.live, refusal })
  }

  #add(sample: Metrics) {
    const seen = this.live.samples
    // A chart needs times that rise. After the server's clock was set back, it begins anew.
    const before = (seen.at(-1)?.at_ms ?? 0) <= sample.at_ms ? seen : []
    const samples = [...(before.length >= SAMPLES_MAX ? before.slice(1) : before), sample]
    this.#set({ ...this.live, samples, version: this.live.version + 1 })
  }

  #set(live: Live) {
    this.live = live
    for (const listener of this.#listeners) listener()
  }
}

/** By the broker's name, which is unique in the region. */
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
