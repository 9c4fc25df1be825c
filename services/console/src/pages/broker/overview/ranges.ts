import type { Schemas } from '../../../api/client'

export interface Range {
  value: string
  label: string
  /** Such as "the last hour". */
  said: string
  seconds: number
  /** Step of the stored history. Null: seen second by second while the page is open. */
  step: Schemas['HistoryStep'] | null
}

const HOUR = 3600
const DAY = 24 * HOUR

export const LIVE: Range = {
  value: 'live',
  label: 'Live',
  said: 'the last 5 minutes',
  seconds: 300,
  step: null,
}

/** The server keeps and answers at most 25 hours of minutes and 31 days of hours. */
export const RANGES: readonly Range[] = [
  LIVE,
  { value: '1h', label: '1 h', said: 'the last hour', seconds: HOUR, step: 'minute' },
  { value: '6h', label: '6 h', said: 'the last 6 hours', seconds: 6 * HOUR, step: 'minute' },
  { value: '24h', label: '24 h', said: 'the last 24 hours', seconds: DAY, step: 'ten_minutes' },
  { value: '7d', label: '7 d', said: 'the last 7 days', seconds: 7 * DAY, step: 'hour' },
  { value: '30d', label: '30 d', said: 'the last 30 days', seconds: 30 * DAY, step: 'hour' },
]
