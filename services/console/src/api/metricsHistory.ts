// The stored history of a broker's metrics; charts/metrics.ts has the numbers of each second.

import { keepPreviousData, queryOptions } from '@tanstack/react-query'
import { now } from '../lib/clock'
import type { BrokerPath } from './brokers'
import { api, body, type Schemas } from './client'

export type HistoryPoint = Schemas['HistoryPoint']
export type HistoryValues = Schemas['HistoryValues']
type Step = Schemas['HistoryStep']

const MINUTE = 60_000

/** The load of a broker over the last `seconds`. */
export const metricsHistoryQuery = (path: BrokerPath, seconds: number, step: Step) =>
  queryOptions({
    queryKey: ['b', path.broker, 'metrics history', seconds, step],
    refetchInterval: MINUTE / 2,
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) =>
      body(
        api.GET('/organisations/{organisation}/brokers/{broker}/metrics/history', {
          params: { path, query: { from: now() - seconds * 1000, step } },
          signal,
        }),
      ),
  })
