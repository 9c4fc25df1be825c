// The signed-in person and their permissions.

import { type QueryClient, queryOptions, useSuspenseQuery } from '@tanstack/react-query'
import { forgetMetrics } from '../charts/metrics'
import { draftStore, forgetDrafts } from '../live/draftStore'
import { api, body, type Schemas, setCsrfToken } from './client'
import { notifyOtherTabs } from './otherTabs'
import { Problem } from './problem'
import { isSessionOver, setSessionOver } from './sessionOver'

export type Session = Schemas['WebSession']
export type Role = Schemas['Role']
export type Permission = Schemas['Permission']

const ME = ['me'] as const

/** Another person uses this browser now. The page is loaded anew, so that nothing of the person before is shown or sent. */
function beginAnew(): Promise<never> {
  forgetMetrics()
  location.assign('/')
  return new Promise(() => {})
}

/** Null: nobody is signed in. */
export const meQuery = queryOptions({
  queryKey: ME,
  staleTime: 60_000,
  queryFn: async ({ client, signal }): Promise<Session | null> => {
    const shown = () => client.getQueryData<Session | null>(ME) ?? null
    try {
      const session = await body(api.GET('/me', { signal }))
      const before = shown()
      if (before && before.user.id !== session.user.id) return beginAnew()
      // A provider's sign-in ends with this first answer.
      if (!before) notifyOtherTabs(session.user.id)
      setCsrfToken(session.csrf_token)
      return session
    } catch (error) {
      // The pages of a session that has ended stay.
      if (error instanceof Problem && error.status === 401) return shown()
      throw error
    }
  },
})

export const waysQuery = queryOptions({
  queryKey: ['ways'],
  staleTime: Number.POSITIVE_INFINITY,
  queryFn: ({ signal }) => body(api.GET('/sign-in/ways', { signal })),
})

/** Stores the session that signing in or up has returned, and removes the data of another person. */
export function signedIn(client: QueryClient, session: Session) {
  client.clear()
  setSessionOver(false)
  forgetMetrics()
  forgetDrafts(draftStore(), session.user.id)
  setCsrfToken(session.csrf_token)
  client.setQueryData(meQuery.queryKey, session)
  notifyOtherTabs(session.user.id)
}

/** The server does not know the session any more. */
export function sessionEnded(client: QueryClient) {
  if (client.getQueryData(meQuery.queryKey)) setSessionOver(true)
  else client.setQueryData(meQuery.queryKey, null)
}

/** Continues after a session that has ended. If another person has signed in, the open pages are closed with what was typed there. */
export function signedInAgain(client: QueryClient, session: Session) {
  const before = client.getQueryData(meQuery.queryKey)
  if (before && before.user.id !== session.user.id) return void beginAnew()
  setCsrfToken(session.csrf_token)
  client.setQueryData(meQuery.queryKey, session)
  setSessionOver(false)
  notifyOtherTabs(session.user.id)
  void client.invalidateQueries()
}

/** The session that another tab of this browser may have begun; null: none. */
export async function sessionOfOtherTab(): Promise<Session | null> {
  try {
    return await body(api.GET('/me'))
  } catch {
    return null
  }
}

/** Follows another tab, in which `person` has signed in; null: somebody has signed out there. */
export async function followOtherTab(client: QueryClient, person: string | null) {
  const before = client.getQueryData(meQuery.queryKey)
  if (!before) return
  if (person === null) return sessionEnded(client)
  const session = await sessionOfOtherTab()
  // Each tab that is opened says who is signed in: mostly it is this session.
  if (session && (isSessionOver() || session.csrf_token !== before.csrf_token)) signedInAgain(client, session)
}

/** Removes what this browser keeps of the person outside of the queries. */
export function forgetPerson() {
  notifyOtherTabs(null)
  setCsrfToken(null)
  forgetMetrics()
  forgetDrafts(draftStore())
}

export async function signOut(client: QueryClient) {
  await body(api.POST('/sign-out'))
  // The shell leaves the page first. Without its queries, the page would fail; the next sign-in clears them.
  client.setQueryData(meQuery.queryKey, null)
  forgetPerson()
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
