// Queries and changes of the operator pages, over the operator API of the admin port.

import { QueryClient, queryOptions } from '@tanstack/react-query'
import { body, everything } from '../api/client'
import { whenBack } from '../api/link'
import type { AuditFilter } from '../api/organisation'
import { Problem } from '../api/problem'
import { samplesOf } from '../lib/prometheus'
import { queryDefaults } from '../shell/queryDefaults'
import { api, keepToken, metricsText, type Schemas } from './client'
import { numbersOf } from './numbers'

export type OwnPod = Schemas['OwnPod']
export type PodLease = Schemas['PodLease']
export type Tenant = Schemas['Tenant']
export type LoudTenant = Schemas['LoudTenant']
/** A link for a new password, and the address of its account. */
export type ResetLink = Schemas['ResetLink'] & { email: string }

export const queryClient = new QueryClient({ defaultOptions: queryDefaults })
whenBack(() => queryClient.invalidateQueries())

const NUMBERS_MS = 2_000
/** Interval of reading the pod while it drains. */
const DRAIN_MS = 500
const PODS_MS = 5_000
const LOUDEST_MS = 30_000
const TENANTS_MAX = 5_000
const LOUDEST_SHOWN = 10

const isRefused = (error: unknown) =>
  error instanceof Problem && (error.status === 401 || error.status === 403)

/** The pod that serves this page. */
export const podQuery = queryOptions({
  queryKey: ['pod'],
  // Without the right token the form asks, and not this.
  refetchInterval: ({ state: { error, data } }: { state: { error: Error | null; data?: OwnPod } }) => {
    if (isRefused(error)) return false as const
    return data?.is_draining && data.connections > 0 ? DRAIN_MS : NUMBERS_MS
  },
  refetchOnWindowFocus: false,
  queryFn: ({ signal }) => body(api.GET('/pod', { signal })),
})

/** Connections of this pod when somebody began its drain in this page; null: nobody did. */
export const drainedFromQuery = queryOptions<number | null>({
  queryKey: ['drained-from'],
  staleTime: Number.POSITIVE_INFINITY,
  gcTime: Number.POSITIVE_INFINITY,
  // Kept when everything is asked for again.
  queryFn: ({ client, queryKey }) => client.getQueryData<number>(queryKey) ?? null,
})

export const podsQuery = queryOptions({
  queryKey: ['pods'],
  refetchInterval: PODS_MS,
  queryFn: async ({ signal }) => (await body(api.GET('/pods', { signal }))).items,
})

/** The numbers of this pod, with those of the minutes before. */
export const numbersQuery = queryOptions({
  queryKey: ['numbers'],
  refetchInterval: NUMBERS_MS,
  queryFn: async ({ signal }) => numbersOf(samplesOf(await metricsText(signal)), Date.now()),
})

export const loudestQuery = queryOptions({
  queryKey: ['loudest'],
  refetchInterval: LOUDEST_MS,
  queryFn: ({ signal }) => body(api.GET('/loudest', { params: { query: { limit: LOUDEST_SHOWN } }, signal })),
})

export const tenantsQuery = queryOptions({
  queryKey: ['tenants'],
  queryFn: ({ signal }) =>
    everything<Tenant>(
      (cursor) => body(api.GET('/tenants', { params: { query: { cursor, limit: 200 } }, signal })),
      TENANTS_MAX,
    ),
})

export const tenantQuery = (tenant: string) =>
  queryOptions({
    queryKey: ['tenants', tenant],
    queryFn: ({ signal }) => body(api.GET('/tenants/{tenant}', { params: { path: { tenant } }, signal })),
  })

interface AuditOf {
  /** Undefined: the log of the region. */
  tenant: string | undefined
  filter: AuditFilter
}

export const auditPage = ({ tenant, filter }: AuditOf, cursor: string | undefined, signal: AbortSignal) => {
  const query = { ...filter, cursor, limit: 100 }
  return tenant === undefined
    ? body(api.GET('/audit', { params: { query }, signal }))
    : body(api.GET('/tenants/{tenant}/audit', { params: { path: { tenant }, query }, signal }))
}

export const suspend = (tenant: string, reason: string) =>
  body(api.POST('/tenants/{tenant}/suspend', { params: { path: { tenant } }, body: { reason } }))

export const resume = (tenant: string) =>
  body(api.POST('/tenants/{tenant}/resume', { params: { path: { tenant } } }))

export const drain = (pod: string) => body(api.POST('/pods/{pod}/drain', { params: { path: { pod } } }))

export const makeResetLink = async (email: string): Promise<ResetLink> => ({
  ...(await body(api.POST('/reset-links', { body: { email } }))),
  email,
})

export const removeSecondFactor = (email: string) =>
  body(api.POST('/second-factor-removals', { body: { email } }))

/** Cached answers were read with the token, so they go with it. */
export function forgetToken() {
  keepToken(null)
  queryClient.clear()
  location.assign('/')
}

/** Keeps a token that the server takes. */
export async function enter(token: string) {
  const pod = await body(api.GET('/pod', { headers: { authorization: `Bearer ${token}` } }))
  keepToken(token)
  queryClient.setQueryData(podQuery.queryKey, pod)
}
