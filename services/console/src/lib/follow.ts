// Follows stored messages while a page is open: when each receiver acknowledged them, and why they left the store. The API has the
// time of an acknowledgement only for offline sessions, so the page compares two answers: a change between them happened in the time
// between them. Each answer has the removals by limits and operators, with time and reason.

import type { MessageReceiver, RemovedMessages, StoredMessage, StoredMessages } from '../api/stored'

/** The API returns this many messages at most. If it does, earlier ones may also be stored. */
export const LISTED_MAX = 50

/** Messages that left the store and stay in the list. */
const LEFT_MAX = 200

/** A time between two answers, in Unix milliseconds. */
export interface Between {
  from: number
  to: number
}

/** Why a message is no longer stored. `removed`: a limit or an operator removed it. `unsubscribed`: no session has its filter any
 * more. */
export type Gone = 'acknowledged' | 'expired' | 'removed' | 'unsubscribed'

export interface FollowedMessage extends StoredMessage {
  /** Null while the message is stored. */
  gone: (Between & { why: Gone; removal: RemovedMessages | null }) | null
}

export interface Followed {
  /** Time of the answer. */
  at: number
  /** The newest first: messages that are stored, and messages that have left the store since the page was opened. */
  messages: readonly FollowedMessage[]
  /** When each receiver acknowledged each message. `from` is the time of publication when the page was not yet open. */
  acknowledged: ReadonlyMap<string, Between>
}

export const receiptOf = ({ position }: StoredMessage, { client_id, filter }: MessageReceiver) =>
  `${position} ${client_id ?? ''} ${filter}`

/** Adds the answer of the time `at`. */
export function follow(before: Followed | null, found: StoredMessages, at: number): Followed {
  const stored = found.items.map((message): FollowedMessage => ({ ...message, gone: null }))
  const names = new Set(found.items.map(({ position }) => position))
  const others = (before?.messages ?? []).filter(({ position }) => !names.has(position))
  const listed = others.filter((message) => message.gone || !mayBeStored(message, found))
  const left = listed
    .map((message) => (message.gone ? message : { ...message, gone: goneOf(message, before, found, at) }))
    .slice(0, LEFT_MAX)
  const messages = [...stored, ...left].sort((one, other) => (one.position < other.position ? 1 : -1))
  return {
    at,
    messages,
    acknowledged: receiptsOf(before, messages, at),
  }
}

/** Whether the answer has no place for a message that is still stored. */
function mayBeStored({ position }: StoredMessage, { items, incomplete }: StoredMessages) {
  const oldest = items.at(-1)?.position
  return (incomplete || items.length >= LISTED_MAX) && (oldest === undefined || position < oldest)
}

function goneOf(
  message: FollowedMessage,
  before: Followed | null,
  { filters }: StoredMessages,
  at: number,
): FollowedMessage['gone'] {
  const own = filters.filter(({ filter }) => message.filters.includes(filter))
  const removal = removalAt(own, message.at_ms)
  const why = (): Gone => {
    if (
      message.waiting + message.in_flight === 0 &&
      !message.receivers.some(({ state }) => state === 'expired')
    )
      return 'acknowledged'
    if (message.expires_at_ms && message.expires_at_ms <= at) return 'expired'
    if (removal) return 'removed'
    return own.length > 0 ? 'acknowledged' : 'unsubscribed'
  }
  return { from: before?.at ?? message.at_ms, to: at, why: why(), removal }
}

/** The latest removal that messages published at `at` were in. */
export function removalAt(filters: StoredMessages['filters'], at: number): RemovedMessages | null {
  const all = filters.flatMap(({ removed }) => removed)
  const then = all.filter(
    ({ published_from_ms, published_to_ms }) => published_from_ms <= at && at <= published_to_ms,
  )
  return then.toSorted((one, other) => other.last_at_ms - one.last_at_ms)[0] ?? null
}

function receiptsOf(before: Followed | null, messages: readonly FollowedMessage[], at: number) {
  const known = new Map<string, Between>()
  const waited = new Set(
    (before?.messages ?? []).flatMap((message) =>
      message.receivers
        .filter(({ state }) => state !== 'acknowledged')
        .map((receiver) => receiptOf(message, receiver)),
    ),
  )
  for (const message of messages) {
    for (const receiver of message.receivers) {
      if (receiver.state !== 'acknowledged') continue
      const receipt = receiptOf(message, receiver)
      const from = before && waited.has(receipt) ? before.at : message.at_ms
      known.set(receipt, before?.acknowledged.get(receipt) ?? { from, to: at })
    }
  }
  return known
}
