// The signed-in person and their permissions.

import { type QueryClient, queryOptions, useSuspenseQuery } from '@tanstack/react-query'
import { forgetMetrics } from '../charts/metrics'
import { api, body, type Schemas, setCsrfToken } from './client'
import { Problem } from './problem'

export type Session = Schemas['WebSession']
export type Role = Schemas['Role']
export type Permission = Schemas['Permission']

/** Null: nobody is signed in. */
export const meQuery = queryOptions({
  queryKey: ['me'],
  staleTime: 60_000,
  queryFn: async ({ signal }): Promise<Session | null> => {
    try {
      const session = await body(api.GET('/me', { signal }))
      setCsrfToken(session.csrf_token)
      return session
    } catch (error) {
      if (error instanceof Problem && error.status === 401) return null
      throw error
    }
  },
})

export const waysQuery = queryOptions({
  queryKey: ['ways'],
  staleTime: Number.POSITIVE_INFINITY,
  queryFn: ({ signal }) => body(api.GET('/sign-in/ways', { signal })),
})

/** Keeps what signing in or up has answered. Data of somebody else goes. */
export function signedIn(client: QueryClient, session: Session) {
  client.clear()
  forgetMetrics()
  setCsrfToken(session.csrf_token)
  client.setQueryData(meQuery.queryKey, session)
}

export async function signOut(client: QueryClient) {
  await body(api.POST('/sign-out'))
  setCsrfToken(null)
  // The shell leaves the page first. Without its queries, the page would fail; the next sign-in clears them.
  client.setQueryData(meQuery.queryKey, null)
  forgetMetrics()
}

/** The person that is signed in. Only for pages behind the sign-in. */
export function useMe(): Session {
  const { data } = useSuspenseQuery(meQuery)
  if (!data) throw new Error('nobody is signed in')
  return data
}

/** The server decides; this only hides what it would refuse. */
export function may(role: Role, permission: Permission): boolean {
  if (role === 'owner') return true
  if (role === 'operator') return permission !== 'organisation:write'
  return permission.endsWith(':read')
}
