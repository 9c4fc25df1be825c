import type { IncidentKind } from '../api/live'

/** Kinds of incidents in words, with the colour and the mark that tell them apart. */
export const KINDS: Record<IncidentKind, { label: string; color: string }> = {
  connect_refused: { label: 'Connect refused', color: 'red' },
  publish_refused: { label: 'Publish refused', color: 'orange' },
  subscribe_refused: { label: 'Subscribe refused', color: 'yellow' },
  limit_reached: { label: 'Limit reached', color: 'violet' },
  messages_dropped: { label: 'Messages dropped', color: 'pink' },
}

export const KIND_NAMES = Object.keys(KINDS) as IncidentKind[]

/** Reasons are names of the API, such as "bad_password". */
export function reasonSaid(reason: string): string {
  const words = reason.replaceAll('_', ' ').trim()
  return words.charAt(0).toUpperCase() + words.slice(1)
}
