// Present activity of a broker's clients, and their stored sessions and messages.

import { keepPreviousData, queryOptions, useQuery } from '@tanstack/react-query'
import type { BrokerPath } from './brokers'
import { api, body, everything, type Schemas } from './client'
import { clientPart } from './clientPart'
import { isPageClient, PAGE_USER } from './messages'
import { orNull } from './problem'

export type Client = Schemas['ConnectedClient']
export type ClientList = Schemas['ClientList']
export type Session = Schemas['Session']
export type Retained = Schemas['Retained']
export type Incident = Schemas['Incident']
export type IncidentKind = Schemas['IncidentKind']

/** Rows that a list loads before it asks the reader to search. */
export const CLIENTS_MAX = 10_000
const ROWS_MAX = 5_000

export const clientsPage = (
  path: BrokerPath,
  search: string | undefined,
  cursor: string | undefined,
  limit: number,
  signal?: AbortSignal,
) =>
  body(
    api.GET('/organisations/{organisation}/brokers/{broker}/clients', {
      params: { path, query: { search: search || undefined, cursor, limit } },
      signal,
    }),
  )

const WAITED_FOR = 200

/** Clients among which a page waits for a device: the first ones by client id, and those of `user`, whose ids may come after them. */
export async function clientsWaitedFor(path: BrokerPath, user: string | undefined, signal?: AbortSignal) {
  const first = await clientsPage(path, undefined, undefined, WAITED_FOR, signal)
  const isCut = Boolean(first.next_cursor)
  if (!isCut || user === undefined) return { items: first.items, isCut }
  const own = await clientsPage(path, user, undefined, WAITED_FOR, signal)
  return { items: [...first.items, ...own.items], isCut }
}

/** With more connections, their number changes all the time, so the pages are counted at an interval and not at each change. */
const COUNTED_ANEW_MAX = 100
const PAGES_COUNTED = 1_000

export interface ConsolePages {
  count: number
  /** There are more than were counted. */
  isMore: boolean
}

/** Counts the pages of consoles that are connected as clients. Null: a server was silent, so nobody knows. */
export async function consolePages(path: BrokerPath, signal?: AbortSignal): Promise<ConsolePages | null> {
  let isKnown = true
  const { items, isCut } = await everything<Client>(async (cursor) => {
    const page = await clientsPage(path, PAGE_USER, cursor, 200, signal)
    isKnown &&= page.unanswered.length === 0
    return page
  }, PAGES_COUNTED)
  return isKnown ? { count: items.filter(isPageClient).length, isMore: isCut } : null
}

/** Interval of recounts while the number of connections stays the same: a page may have taken a device's place. */
export const RECOUNT_MS = {
  broker: 5_000,
  /** One of many brokers in a list. */
  card: 60_000,
}

/** Counted again when `connections` changes. */
export const consolePagesQuery = (
  path: BrokerPath,
  connections: number | undefined,
  place: keyof typeof RECOUNT_MS,
) =>
  queryOptions({
    queryKey: ['b', path.broker, 'clients', 'consoles', Math.min(connections ?? 0, COUNTED_ANEW_MAX)],
    placeholderData: keepPreviousData,
    refetchInterval: RECOUNT_MS[place],
    queryFn: ({ signal }) => consolePages(path, signal),
  })

/** How many of `connections` are devices and no pages of a console; all, if the pages are unknown. Null: not counted yet. */
export function devicesOf(connections: number | undefined, pages: ConsolePages | null | undefined) {
  if (connections === 0) return 0
  if (connections === undefined || pages === undefined) return null
  return Math.max(0, connections - (pages?.count ?? 0))
}

export function useDevices(
  path: BrokerPath,
  connections: number | undefined,
  place: keyof typeof RECOUNT_MS,
) {
  const { data, isError } = useQuery({
    ...consolePagesQuery(path, connections, place),
    enabled: connections !== undefined && connections > 0,
  })
  const pages = data === undefined && isError ? null : data
  return { devices: devicesOf(connections, pages), pages: pages ?? null }
}

/** Null: the client is not connected. */
export const clientQuery = (path: BrokerPath, client_id: string) =>
  queryOptions({
    queryKey: ['b', path.broker, 'client', client_id],
    refetchInterval: 3_000,
    queryFn: ({ signal }) =>
      orNull(
        body(
          api.GET('/organisations/{organisation}/brokers/{broker}/clients/{client_id}', {
            params: { path: { ...path, client_id: clientPart(client_id) } },
            signal,
          }),
        ),
      ),
  })

export const disconnectClient = (path: BrokerPath, client_id: string) =>
  body(
    api.DELETE('/organisations/{organisation}/brokers/{broker}/clients/{client_id}', {
      params: { path: { ...path, client_id: clientPart(client_id) } },
    }),
  )

/** Sessions whose client id begins with `search`. */
export const sessionsQuery = (path: BrokerPath, search = '') =>
  queryOptions({
    queryKey: ['b', path.broker, 'sessions', search],
    refetchInterval: 15_000,
    queryFn: ({ signal }) =>
      everything<Session>(
        (cursor) =>
          body(
            api.GET('/organisations/{organisation}/brokers/{broker}/sessions', {
              params: { path, query: { cursor, limit: 200, search: search || undefined } },
              signal,
            }),
          ),
        ROWS_MAX,
      ),
  })

export const sessionQuery = (path: BrokerPath, client_id: string) =>
  queryOptions({
    queryKey: ['b', path.broker, 'session', client_id],
    refetchInterval: 5_000,
    queryFn: ({ signal }) =>
      body(
        api.GET('/organisations/{organisation}/brokers/{broker}/sessions/{client_id}', {
          params: { path: { ...path, client_id: clientPart(client_id) } },
          signal,
        }),
      ),
  })

export const clearSession = (path: BrokerPath, client_id: string) =>
  body(
    api.DELETE('/organisations/{organisation}/brokers/{broker}/sessions/{client_id}', {
      params: { path: { ...path, client_id: clientPart(client_id) } },
    }),
  )

export const retainedQuery = (path: BrokerPath, filter: string | undefined) =>
  queryOptions({
    queryKey: ['b', path.broker, 'retained', filter ?? ''],
    refetchInterval: 15_000,
    queryFn: ({ signal }) =>
      everything<Retained>(
        (cursor) =>
          body(
            api.GET('/organisations/{organisation}/brokers/{broker}/retained', {
              params: { path, query: { filter, cursor, limit: 200 } },
              signal,
            }),
          ),
        ROWS_MAX,
      ),
  })

const LEVELS_READ = 200

/** The levels of retained topics below one; without it, the first levels. */
export const topicLevelsQuery = (path: BrokerPath, below: string | undefined) =>
  queryOptions({
    queryKey: ['b', path.broker, 'topic levels', below ?? ''],
    staleTime: 10_000,
    queryFn: ({ signal }) =>
      body(
        api.GET('/organisations/{organisation}/brokers/{broker}/topics', {
          params: { path, query: { below, limit: LEVELS_READ } },
          signal,
        }),
      ),
  })

export const retainedMessageQuery = (path: BrokerPath, topic: string) =>
  queryOptions({
    queryKey: ['b', path.broker, 'retained message', topic],
    queryFn: ({ signal }) =>
      body(
        api.GET('/organisations/{organisation}/brokers/{broker}/retained/message', {
          params: { path, query: { topic } },
          signal,
        }),
      ),
  })

export const clearRetained = (path: BrokerPath, topic: string) =>
  body(
    api.DELETE('/organisations/{organisation}/brokers/{broker}/retained/message', {
      params: { path, query: { topic } },
    }),
  )

interface IncidentFilter {
  kind?: IncidentKind
  client_id?: string
}

export const incidentsQuery = (path: BrokerPath, filter: IncidentFilter, rowsMax: number) =>
  queryOptions({
    queryKey: ['b', path.broker, 'incidents', filter, rowsMax],
    refetchInterval: 5_000,
    queryFn: ({ signal }) =>
      everything<Incident>(
        (cursor) =>
          body(
            api.GET('/organisations/{organisation}/brokers/{broker}/incidents', {
              params: { path, query: { ...filter, cursor, limit: Math.min(rowsMax, 200) } },
              signal,
            }),
          ),
        rowsMax,
      ),
  })
