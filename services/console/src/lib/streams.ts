// Numbers and texts of a stream in the list of streams.

import type { Schemas } from '../api/client'
import { plural } from './format'
import { storing } from './storing'

export type Stream = Schemas['Stream']

/** Messages that wait for the group of a shared subscription. For another filter these are all that are stored, because a session may need each. */
export function waitingIn({ group, stored_messages }: Stream) {
  if (!group) return { messages: stored_messages, isMore: false }
  return { messages: group.waiting_messages, isMore: group.waiting_is_more }
}

export const waitingSince = ({ group, oldest_stored_at_ms }: Stream) =>
  (group ? group.oldest_waiting_at_ms : oldest_stored_at_ms) ?? null

/** For whom the messages wait, such as "2 sessions". */
export function receiversText({ filter, group, subscriptions }: Stream) {
  const { webhook } = storing(filter)
  if (webhook) return `webhook ${webhook}`
  return group ? `group of ${plural(subscriptions, 'session')}` : plural(subscriptions, 'session')
}

/** The streams whose filter contains a text, the ones with the most waiting messages first. */
export function streamsSorted(streams: readonly Stream[], search: string) {
  const found = streams.filter(({ filter }) => filter.toLowerCase().includes(search.toLowerCase()))
  return found.sort(
    (a, b) => waitingIn(b).messages - waitingIn(a).messages || a.filter.localeCompare(b.filter),
  )
}
