// Texts for the reasons why a message is no longer stored.

import type { FollowedMessage, Gone } from '../../../lib/follow'
import { absolute, plural } from '../../../lib/format'

/** "12:03:04" of a time in Unix milliseconds. */
export const timeSaid = (at: number) => absolute(at).slice(11)

type Left = NonNullable<FollowedMessage['gone']>

const between = ({ from, to }: Left) => `between ${timeSaid(from)} and ${timeSaid(to)}`

interface Words {
  /** In a row of the list. */
  state: string
  title: string
  text: (message: FollowedMessage, gone: Left) => string
}

export const GONE: Record<Gone, Words> = {
  acknowledged: {
    state: 'left: acknowledged by all',
    title: 'Acknowledged by each session',
    text: (_, gone) =>
      `The last acknowledgement came ${between(gone)}, and the server removed the message from the store.`,
  },
  expired: {
    state: 'left: expired',
    title: 'Expired',
    text: ({ expires_at_ms }) =>
      `Its message expiry interval ended at ${timeSaid(expires_at_ms ?? 0)}. The receivers below that had not acknowledged it do not get it.`,
  },
  limit: {
    state: 'left: removed by a limit',
    title: 'Removed by a limit',
    text: (_, gone) =>
      `A limit removed ${plural(gone.removed, 'message')} of its filters ${between(gone)}, so probably this one, too. Receivers that were waiting do not get it.`,
  },
  unsubscribed: {
    state: 'left: no session subscribes',
    title: 'No session subscribes to it any more',
    text: (_, gone) =>
      `The last session with a filter of this topic ended or unsubscribed ${between(gone)}. The server then removed what was stored for it.`,
  },
}
