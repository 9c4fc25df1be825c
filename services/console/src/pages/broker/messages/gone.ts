// Texts for the reasons why a message is no longer stored.

import type { RemovalReason, RemovedMessages } from '../../../api/stored'
import type { FollowedMessage, Gone } from '../../../lib/follow'
import { absolute } from '../../../lib/format'

/** "12:03:04" of a time in Unix milliseconds. */
export const timeText = (at: number) => absolute(at).slice(11)

type GoneDetails = NonNullable<FollowedMessage['gone']>

/** The API does not say when a message was removed, only the two answers between which it was. */
const between = ({ from, to }: GoneDetails) => `between ${timeText(from)} and ${timeText(to)}`

/** Subjects of a sentence about a removal. */
export const REMOVED_BY: Record<RemovalReason, string> = {
  queue_age: 'The limit on the age of waiting messages',
  queue_size: 'The limit on the messages or bytes that wait for a session',
  broker_queue_bytes: 'The limit on the bytes of all queues',
  purged: 'An operator, who cleared the queue,',
}

/** "at 12:03:04", or "between 12:03:04 and 12:03:59". */
export function removedText({ first_at_ms, last_at_ms }: RemovedMessages) {
  const [first, last] = [timeText(first_at_ms), timeText(last_at_ms)]
  return first === last ? `at ${first}` : `between ${first} and ${last}`
}

interface Words {
  /** In a row of the list. */
  state: string
  title: string
  text: (message: FollowedMessage, gone: GoneDetails) => string
}

export const GONE: Record<Gone, Words> = {
  acknowledged: {
    state: 'removed: acknowledged by all',
    title: 'Acknowledged by each session',
    text: (_, gone) =>
      `The last acknowledgement came ${between(gone)}, and the server removed the message from the store.`,
  },
  expired: {
    state: 'expired',
    title: 'Expired',
    text: ({ expires_at_ms }) =>
      `Its message expiry interval ended at ${timeText(expires_at_ms ?? 0)}. The receivers below that had not acknowledged it will not get it.`,
  },
  removed: {
    state: 'removed: by a limit or an operator',
    title: 'Removed before each session had it',
    text: (_, { removal }) =>
      removal
        ? `${REMOVED_BY[removal.reason]} removed messages of that period ${removedText(removal)}. Receivers that had not acknowledged this one will not get it.`
        : 'Receivers that had not acknowledged it will not get it.',
  },
  unsubscribed: {
    state: 'removed: no session subscribes',
    title: 'No session subscribes to it any more',
    text: (_, gone) =>
      `The last session with a filter of this topic ended or unsubscribed ${between(gone)}. The server then removed what was stored for it.`,
  },
}
