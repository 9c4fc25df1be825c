import { useEffect, useMemo, useSyncExternalStore } from 'react'
import type { SeenMessage } from '../lib/topics'
import type { Message } from './log'

/** Topics that a page remembers. */
const TOPICS_MAX = 2_000
/** A larger payload is not kept, only its size. */
const PAYLOAD_BYTES_MAX = 64 * 1024
const FLUSH_MS = 500

/** The last message of each topic that the page has seen, the first `TOPICS_MAX` topics. */
export class SeenTopics {
  #topics = new Map<string, SeenMessage>()
  #view: ReadonlyMap<string, SeenMessage> = new Map()
  #lastId: number
  #timer: ReturnType<typeof setTimeout> | undefined
  #listeners = new Set<() => void>()

  /** Messages up to this id are of no interest. */
  constructor(lastId = 0) {
    this.#lastId = lastId
  }

  read = () => this.#view

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Takes what is new of a list whose newest message is the first. */
  take(messages: readonly Message[]) {
    const known = messages.findIndex(({ id }) => id <= this.#lastId)
    const arrived = known < 0 ? messages : messages.slice(0, known)
    for (const { topic, payload, qos, at } of arrived.toReversed()) {
      if (!this.#topics.has(topic) && this.#topics.size >= TOPICS_MAX) continue
      const kept = payload.length > PAYLOAD_BYTES_MAX ? null : payload
      this.#topics.set(topic, { at, qos, bytes: payload.length, payload: kept })
    }
    this.#lastId = Math.max(this.#lastId, arrived[0]?.id ?? 0)
    if (arrived.length > 0) this.#timer ??= setTimeout(this.flush, FLUSH_MS)
  }

  flush = () => {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#view = new Map(this.#topics)
    for (const listener of this.#listeners) listener()
  }
}

/** Topics of a page's messages; another filter begins anew. */
export function useSeenTopics(messages: readonly Message[], filter: string) {
  // biome-ignore lint/correctness/useExhaustiveDependencies: what was seen before the filter changed does not belong to it
  const seen = useMemo(() => new SeenTopics(messages[0]?.id), [filter])
  useEffect(() => seen.take(messages), [seen, messages])
  return useSyncExternalStore(seen.subscribe, seen.read)
}
