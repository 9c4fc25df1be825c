import { queryOptions } from '@tanstack/react-query'
import { api, body, type Schemas } from './client'
import type { Used } from './usage'

export type UnitPrice = Schemas['UnitPrice']

export const pricesQuery = queryOptions({
  queryKey: ['prices'],
  staleTime: 600_000,
  queryFn: async ({ signal }) => (await body(api.GET('/prices', { signal }))).items,
})

/** How much of a unit was used; "bytes" are those of both directions. */
export function amountOf(used: Used, unit: string): number {
  if (unit === 'bytes') return used.bytes_in + used.bytes_out
  return (used as Record<string, number>)[unit] ?? 0
}

/** Millionths of the currency. */
export const costOf = (used: Used, { unit, micros_per_million }: UnitPrice) =>
  (amountOf(used, unit) * micros_per_million) / 1_000_000
