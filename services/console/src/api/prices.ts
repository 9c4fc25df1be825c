// Prices of usage, and the cost of an amount. Money is in millionths of the currency.

import { queryOptions } from '@tanstack/react-query'
import { api, body, type Schemas } from './client'
import type { Used } from './usage'

export type UnitPrice = Schemas['UnitPrice']

export const pricesQuery = queryOptions({
  queryKey: ['prices'],
  staleTime: 600_000,
  queryFn: ({ signal }) => body(api.GET('/prices', { signal })),
})

/** Names of the units that have prices. */
export const UNITS: Record<string, string> = {
  messages_in: 'Messages in',
  messages_delivered: 'Messages delivered',
  connected_session_minutes: 'Minutes of connected sessions',
  stored_session_minutes: 'Minutes of stored sessions',
  stored_byte_hours: 'Stored byte-hours',
  retained_byte_hours: 'Retained byte-hours',
  bytes: 'Bytes, in and out',
}

/** The prices of units that cost something. */
export const charged = ({ items }: Schemas['PriceList']) =>
  items.filter(({ micros_per_million }) => micros_per_million > 0)

/** How much of a unit was used; "bytes" are those of both directions. */
export function amountOf(used: Used, unit: string): number {
  if (unit === 'bytes') return used.bytes_in + used.bytes_out
  return (used as Record<string, number>)[unit] ?? 0
}

/** Millionths of the currency. */
export const costOf = (used: Used, { unit, micros_per_million }: UnitPrice) =>
  (amountOf(used, unit) * micros_per_million) / 1_000_000
