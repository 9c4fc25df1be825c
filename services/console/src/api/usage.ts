// Usage and spend caps of brokers and organisations.

import { queryOptions } from '@tanstack/react-query'
import type { BrokerPath } from './brokers'
import { api, body, type Schemas, type Tagged, tagged } from './client'
import { Problem } from './problem'

export type Used = Schemas['Used']
export type Window = Schemas['UsageWindow']
export type SpendCap = Schemas['SpendCap']

export interface Span {
  from: number
  to: number
  step: 'hour' | 'day'
}

const HOUR = 3_600_000

/** Time ranges of the usage pages, on whole hours or days. Months are those of a bill: from the first of the month, in UTC. */
export function spanOf(range: string | undefined, now: number): Span {
  const to = Math.floor(now / HOUR) * HOUR + HOUR
  const today = new Date(now)
  const monthStart = (back: number) => Date.UTC(today.getUTCFullYear(), today.getUTCMonth() - back, 1)
  if (range === 'month') return { from: monthStart(0), to, step: 'day' }
  if (range === 'last-month') return { from: monthStart(1), to: monthStart(0), step: 'day' }
  if (range === '24h') return { from: to - 24 * HOUR, to, step: 'hour' }
  if (range === '30d') return { from: to - 30 * 24 * HOUR, to, step: 'day' }
  return { from: to - 7 * 24 * HOUR, to, step: 'hour' }
}

export const usageQuery = (path: BrokerPath, span: Span) =>
  queryOptions({
    queryKey: ['b', path.broker, 'usage', span],
    refetchInterval: 30_000,
    queryFn: ({ signal }) =>
      body(
        api.GET('/organisations/{organisation}/brokers/{broker}/usage', {
          params: { path, query: span },
          signal,
        }),
      ),
  })

export const organisationUsageQuery = (organisation: string, span: Span) =>
  queryOptions({
    queryKey: ['org', organisation, 'usage', span],
    refetchInterval: 30_000,
    queryFn: ({ signal }) =>
      body(
        api.GET('/organisations/{organisation}/usage', {
          params: { path: { organisation }, query: span },
          signal,
        }),
      ),
  })

/** Names a broker, or an organisation. */
export interface CapPath {
  organisation: string
  broker?: string
}

const BROKER = '/organisations/{organisation}/brokers/{broker}/spend-cap'
const ALL = '/organisations/{organisation}/spend-cap'

const read = ({ organisation, broker }: CapPath, signal: AbortSignal) =>
  broker
    ? tagged(api.GET(BROKER, { params: { path: { organisation, broker } }, signal }))
    : tagged(api.GET(ALL, { params: { path: { organisation } }, signal }))

/** Null: there is no cap. */
export const capQuery = (path: CapPath) =>
  queryOptions({
    queryKey: ['cap', path.organisation, path.broker ?? ''],
    refetchInterval: 30_000,
    queryFn: async ({ signal }): Promise<Tagged<SpendCap> | null> => {
      try {
        return await read(path, signal)
      } catch (error) {
        if (error instanceof Problem && error.status === 404) return null
        throw error
      }
    },
  })

export function setCap(
  { organisation, broker }: CapPath,
  cap: Schemas['NewSpendCap'],
  etag: string | undefined,
) {
  const header = etag ? { 'If-Match': etag } : { 'If-None-Match': '*' }
  if (broker) return body(api.PUT(BROKER, { params: { path: { organisation, broker }, header }, body: cap }))
  return body(api.PUT(ALL, { params: { path: { organisation }, header }, body: cap }))
}

export function deleteCap({ organisation, broker }: CapPath) {
  const header = { 'If-Match': '*' }
  if (broker) return body(api.DELETE(BROKER, { params: { path: { organisation, broker }, header } }))
  return body(api.DELETE(ALL, { params: { path: { organisation }, header } }))
}
