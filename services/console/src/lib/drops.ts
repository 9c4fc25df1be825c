import type { Schemas } from '../api/client'

export type Drops = Schemas['Drops']

/** Reasons why messages are dropped, as people read them, with the colour and the dashes (in pixels) of their lines in charts. */
export const DROPS: Record<keyof Drops, { label: string; color: string; dash?: number[] }> = {
  busy_socket: { label: 'receiver too slow', color: '--c5' },
  queue_full: { label: 'queue full', color: '--c2', dash: [6, 3] },
  queue_memory: { label: 'queue memory limit', color: '--c3', dash: [2, 3] },
  expired: { label: 'expired', color: '--c8', dash: [8, 3, 2, 3] },
  packet_too_large: { label: 'too large for receiver', color: '--c6', dash: [12, 4] },
  stored_limit: { label: 'limit of stored messages', color: '--c7', dash: [4, 2] },
}

export const DROP_REASONS = Object.keys(DROPS) as (keyof Drops)[]
