// The region that this server belongs to, and the plans of its tenants. A server lists no region but its own.

import { queryOptions } from '@tanstack/react-query'
import { api, body } from './client'

export const regionQuery = queryOptions({
  queryKey: ['region'],
  staleTime: 60_000,
  queryFn: async ({ signal }) => (await body(api.GET('/regions', { signal }))).items[0] ?? null,
})

export const plansQuery = queryOptions({
  queryKey: ['plans'],
  staleTime: 60_000,
  queryFn: async ({ signal }) => (await body(api.GET('/plans', { signal }))).items,
})
