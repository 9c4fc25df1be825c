// Losses of a dangerous action, counted when its question opens.

import { useQueries, useQuery } from '@tanstack/react-query'
import { credentialsQuery } from '../api/access'
import { brokersQuery, useBroker } from '../api/brokers'
import { api, body, everything } from '../api/client'
import { type Client, clientsPage, retainedQuery, sessionQuery, sessionsQuery } from '../api/live'
import { membersQuery } from '../api/organisation'
import { Problem } from '../api/problem'
import { webhooksQuery } from '../api/webhooks'
import { plural } from '../lib/format'

const CLIENTS_COUNTED = 2_000
/** Four lines, the longest text while things are counted: the dialog does not move when the numbers come. */
const LOSSES_HEIGHT = '5.8em'

/** "3 connected clients are disconnected": those that `isOne` holds for. `search` is what their client id or user begins with. */
export function ConnectedClients({
  search,
  isOne = () => true,
}: {
  search?: string
  isOne?: (client: Client) => boolean
}) {
  const { path } = useBroker()
  const query = useQuery({
    queryKey: ['b', path.broker, 'clients', 'counted', search ?? ''],
    queryFn: ({ signal }) =>
      everything<Client>((cursor) => clientsPage(path, search, cursor, 200, signal), CLIENTS_COUNTED),
  })
  if (query.isError) return 'All connected clients are disconnected'
  if (!query.data) return 'Connected clients (being counted) are disconnected'
  const found = query.data.items.filter(isOne).length
  const more = query.data.isCut ? ' or more' : ''
  return `${plural(found, 'connected client')}${more} ${found === 1 ? 'is' : 'are'} disconnected`
}

/** Parts of a client's stored session that survive when its connection is closed. */
export function KeptSession({ id }: { id: string }) {
  const { path } = useBroker()
  const { data, error } = useQuery(sessionQuery(path, id))
  if (error instanceof Problem && error.status === 404) {
    return 'It has no stored session: its subscriptions end with the connection.'
  }
  if (!data) return 'Its stored session stays.'
  const more = data.waiting_is_more ? ' or more' : ''
  return `Its session stays, with ${plural(data.subscriptions, 'subscription')} and ${plural(data.waiting_messages, 'waiting message')}${more}.`
}

/** "3 credentials": those of a group. */
export function CredentialsOf({ group }: { group: string }) {
  const { path } = useBroker()
  const { data } = useQuery(credentialsQuery(path))
  if (!data) return 'its credentials'
  return plural(data.items.filter((one) => one.group === group).length, 'credential')
}

/** Brokers whose clients and messages are counted. */
const BROKERS_COUNTED = 50

/** All brokers of an organisation, with what they have now. */
export function OrganisationLosses({ id }: { id: string }) {
  const brokers = useQuery(brokersQuery)
  const members = useQuery(membersQuery(id))
  const own = (brokers.data ?? []).filter(({ organisation }) => organisation === id)
  const metrics = useQueries({
    queries: own.slice(0, BROKERS_COUNTED).map(({ name }) => ({
      queryKey: ['b', name, 'metrics', 'counted'],
      queryFn: ({ signal }: { signal: AbortSignal }) => {
        const path = { organisation: id, broker: name }
        return body(
          api.GET('/organisations/{organisation}/brokers/{broker}/metrics', { params: { path }, signal }),
        )
      },
    })),
  })
  const known = metrics.flatMap(({ data }) => (data ? [data] : []))
  const isMore = known.length < own.length ? ' or more' : ''
  const clients = known.reduce((sum, one) => sum + one.connections, 0)
  const stored = known.reduce((sum, one) => sum + one.stored_messages, 0)
  if (!brokers.data)
    return 'All its brokers are lost, with their clients, sessions and messages, for all members. It cannot be undone.'
  return (
    <>
      {plural(own.length, 'broker')} with {plural(clients, 'connected client')} and{' '}
      {plural(stored, 'stored message')}
      {isMore} {own.length === 1 ? 'is' : 'are'} lost, for{' '}
      {members.data ? plural(members.data.items.length, 'member') : 'all members'}. It cannot be undone.
    </>
  )
}

/** All that a broker has. */
export function BrokerLosses() {
  const { path } = useBroker()
  const sessions = useQuery(sessionsQuery(path))
  const retained = useQuery(retainedQuery(path, undefined))
  const credentials = useQuery(credentialsQuery(path))
  const webhooks = useQuery(webhooksQuery(path))
  const waiting = sessions.data?.items.reduce((sum, one) => sum + one.waiting_messages, 0)
  const isMore = sessions.data?.isCut || sessions.data?.items.some((one) => one.waiting_is_more)
  const of = (list: { items: unknown[]; isCut?: boolean } | undefined, noun: string) =>
    list ? `${plural(list.items.length, noun)}${list.isCut ? ' or more' : ''}` : `all ${noun}s`
  return (
    <div style={{ minHeight: LOSSES_HEIGHT }}>
      {of(sessions.data, 'session')} with{' '}
      {waiting === undefined ? 'all waiting messages' : plural(waiting, 'waiting message')}
      {isMore && ' or more'}, {of(retained.data, 'retained message')}, {of(credentials.data, 'credential')}{' '}
      and {of(webhooks.data, 'webhook')} are lost. <ConnectedClients />.
    </div>
  )
}
