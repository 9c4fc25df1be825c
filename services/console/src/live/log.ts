// The messages that the page has seen. When they come too fast, rows are left out, so that the page stays responsive.

import { now as serverNow } from '../lib/clock'

export interface Message {
  id: number
  at: number
  topic: string
  payload: Uint8Array
  qos: 0 | 1 | 2
  retain: boolean
  properties: Properties | undefined
}

export interface Properties {
  contentType?: string
  responseTopic?: string
  messageExpiryInterval?: number
  correlationData?: Uint8Array
  payloadFormatIndicator?: boolean
  userProperties?: Record<string, string | string[]>
}

/** Messages that are kept. */
export const KEPT_MAX = 2000
/** Bytes of payloads that are kept. */
export const KEPT_BYTES_MAX = 32 * 1024 * 1024
/** Interval of showing new rows. */
const FLUSH_MS = 100
/** The same for a stream that is too fast to read, so that drawing leaves time for the rest of the page. */
const BUSY_FLUSH_MS = 250
const BUSY_PER_S = 200
/** Interval of computing the rate while no message comes, until it is zero. */
const IDLE_MS = 500
/** Rows added at one time. Nobody can read more, so earlier ones are skipped. */
const ROWS_PER_FLUSH = 300

export interface View {
  /** Newest first. */
  messages: readonly Message[]
  received: number
  /** Messages that came too fast to be shown. */
  skipped: number
  perSecond: number
  isPaused: boolean
  /** Messages that came since the pause. */
  missed: number
}

const NOTHING: View = { messages: [], received: 0, skipped: 0, perSecond: 0, isPaused: false, missed: 0 }

export class MessageLog {
  #view = NOTHING
  #arrived: Message[] = []
  #ids = 0
  #skipped = 0
  #received = 0
  #missed = 0
  #recent: { at: number; received: number }[] = []
  #timer: ReturnType<typeof setTimeout> | undefined
  #idle: ReturnType<typeof setTimeout> | undefined
  #listeners = new Set<() => void>()
  #now: () => number

  constructor(now = serverNow) {
    this.#now = now
  }

  read = () => this.#view

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  add(message: Omit<Message, 'id' | 'at'>) {
    this.#received += 1
    if (this.#view.isPaused) {
      this.#missed += 1
    } else {
      this.#ids += 1
      this.#arrived.push({ ...message, id: this.#ids, at: this.#now() })
      if (this.#arrived.length > ROWS_PER_FLUSH * 2) this.#skip()
    }
    this.#flushSoon()
  }

  /** Messages that the server has left out. */
  skip(messages: number) {
    this.#received += messages
    this.#skipped += messages
    this.#flushSoon()
  }

  #flushSoon() {
    const isBusy = this.#view.perSecond > BUSY_PER_S
    this.#timer ??= setTimeout(this.flush, isBusy ? BUSY_FLUSH_MS : FLUSH_MS)
  }

  pause(isPaused: boolean) {
    this.flush()
    this.#missed = 0
    this.#set({ isPaused, missed: 0 })
  }

  clear() {
    this.#arrived = []
    this.#skipped = 0
    this.#received = 0
    this.#missed = 0
    this.#recent = []
    this.#set({ ...NOTHING, isPaused: this.#view.isPaused })
  }

  /** Brings what has come into the view. */
  flush = () => {
    clearTimeout(this.#timer)
    clearTimeout(this.#idle)
    this.#timer = undefined
    this.#skip()
    const arrived = this.#arrived.reverse()
    this.#arrived = []
    const perSecond = this.#rate()
    // A timer of its own: with #timer, rows that arrive before it fires would wait for it.
    if (perSecond > 0) this.#idle = setTimeout(this.flush, IDLE_MS)
    this.#set({
      messages: arrived.length > 0 ? keep([...arrived, ...this.#view.messages]) : this.#view.messages,
      received: this.#received,
      skipped: this.#skipped,
      missed: this.#missed,
      perSecond,
    })
  }

  /** Over the last two seconds. */
  #rate(): number {
    const now = this.#now()
    this.#recent.push({ at: now, received: this.#received })
    while (this.#recent.length > 1 && now - (this.#recent[0]?.at ?? now) > 2000) this.#recent.shift()
    const first = this.#recent[0]
    if (!first || now - first.at < 200) return this.#view.perSecond
    return Math.round(((this.#received - first.received) * 1000) / (now - first.at))
  }

  #skip() {
    const over = this.#arrived.length - ROWS_PER_FLUSH
    if (over <= 0) return
    this.#arrived.splice(0, over)
    this.#skipped += over
  }

  #set(change: Partial<View>) {
    this.#view = { ...this.#view, ...change }
    for (const listener of this.#listeners) listener()
  }
}

function keep(messages: Message[]): Message[] {
  let bytes = 0
  let count = 0
  for (const { payload } of messages) {
    bytes += payload.length
    if (count >= KEPT_MAX || (bytes > KEPT_BYTES_MAX && count > 0)) break
    count += 1
  }
  return messages.slice(0, count)
}
