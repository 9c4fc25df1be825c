import type { IncidentKind } from '../api/live'

/** Kinds of incidents as people read them, with a colour and a symbol that tell them apart. */
export const KINDS: Record<IncidentKind, { label: string; color: string; mark: string }> = {
  connect_refused: { label: 'Connect refused', color: '--bad', mark: '✕' },
  publish_refused: { label: 'Publish refused', color: '--c2', mark: '▲' },
  subscribe_refused: { label: 'Subscribe refused', color: '--c6', mark: '■' },
  limit_reached: { label: 'Limit reached', color: '--c3', mark: '◆' },
  messages_dropped: { label: 'Messages dropped', color: '--c5', mark: '▼' },
}

export const KIND_NAMES = Object.keys(KINDS) as IncidentKind[]

/** Reasons are names of the API, such as "bad_password". */
export function reasonText(reason: string): string {
  const words = reason.replaceAll('_', ' ').trim()
  return words.charAt(0).toUpperCase() + words.slice(1)
}
