// Follows stored messages while a page is open: when each receiver acknowledged them, and why they left the store. The API says how
// far each receiver is and no time, so the page compares two answers: a change between them happened in the time between them.

import type { MessageReceiver, StoredMessage, StoredMessages } from '../api/stored'

/** The API returns as many messages at most: an earlier one may still be stored. */
export const LISTED_MAX = 50

/** Messages that left the store and stay in the list. */
const LEFT_MAX = 200

/** A time between two answers, in Unix milliseconds. */
export interface Between {
  from: number
  to: number
}

/** Why a message is no longer stored. `limit`: a limit removed messages of its filter at that time, so probably this one, too.
 * `unsubscribed`: no session has its filter any more. */
export type Gone = 'acknowledged' | 'expired' | 'limit' | 'unsubscribed'

export interface FollowedMessage extends StoredMessage {
  /** Null while the message is stored. */
  gone: (Between & { why: Gone; removed: number }) | null
}

export interface Followed {
  /** Time of the answer. */
  at: number
  /** The newest first: those that are stored, and those that were when the page first looked. */
  messages: readonly FollowedMessage[]
  /** When each receiver acknowledged each message. `from` is the time of publication when the page was not yet open. */
  acknowledged: ReadonlyMap<string, Between>
  trimmed: ReadonlyMap<string, number>
}

export const receiptOf = ({ position }: StoredMessage, { client_id, filter }: MessageReceiver) =>
  `${position} ${client_id ?? ''} ${filter}`

/** Adds the answer of the time `at`. */
export function follow(before: Followed | null, found: StoredMessages, at: number): Followed {
  const trimmed = new Map(found.filters.map(({ filter, trimmed }) => [filter, trimmed]))
  const stored = found.items.map((message): FollowedMessage => ({ ...message, gone: null }))
  const names = new Set(found.items.map(({ position }) => position))
  const others = (before?.messages ?? []).filter(({ position }) => !names.has(position))
  const listed = others.filter((message) => message.gone || !mayBeStored(message, found))
  const left = listed
    .map((message) => (message.gone ? message : { ...message, gone: goneOf(message, before, trimmed, at) }))
    .slice(0, LEFT_MAX)
  const messages = [...stored, ...left].sort((one, other) => (one.position < other.position ? 1 : -1))
  return {
    at,
    messages,
    acknowledged: receiptsOf(before, messages, at),
    trimmed,
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
  trimmed: ReadonlyMap<string, number>,
  at: number,
): FollowedMessage['gone'] {
  const removed = message.filters.reduce(
    (sum, filter) => sum + Math.max(0, (trimmed.get(filter) ?? 0) - (before?.trimmed.get(filter) ?? 0)),
    0,
  )
  const why = (): Gone => {
    if (
      message.waiting + message.in_flight === 0 &&
      !message.receivers.some(({ state }) => state === 'expired')
    )
      return 'acknowledged'
    if (message.expires_at_ms && message.expires_at_ms <= at) return 'expired'
    if (removed > 0) return 'limit'
    return message.filters.some((filter) => trimmed.has(filter)) ? 'acknowledged' : 'unsubscribed'
  }
  return { from: before?.at ?? message.at_ms, to: at, why: why(), removed }
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
