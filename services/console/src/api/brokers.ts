// Brokers, and the one that the address names.

import { queryOptions, useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import { api, body, everything, type Schemas } from './client'
import { endpointOf } from './endpoints'
import { isMissing, Problem } from './problem'
import { may, meQuery, type Permission, type Role, useMe } from './session'

export type Broker = Schemas['Broker']

/** The path of a broker in the API. */
export interface BrokerPath {
  organisation: string
  broker: string
}

export interface PlacedBroker extends Broker {
  organisation: string
  role: Role
}

/** Whether the broker refuses all clients, pages of the console too. */
export const isStopped = ({ suspended, is_over_cap }: Broker) => suspended || is_over_cap

/** Brokers of an organisation in the list. The page of a further one opens by its address. */
const BROKERS_MAX = 1000

/** Brokers of all organisations that somebody belongs to. */
export const brokersQuery = queryOptions({
  queryKey: ['brokers'],
  refetchInterval: 30_000,
  queryFn: async ({ client, signal }) => {
    // Cached data would miss a membership that has just begun or ended.
    const me = await client.fetchQuery(meQuery)
    const lists = (me?.organisations ?? []).map(async ({ id, role }) => {
      const list = await everything<Broker>(
        (cursor) =>
          body(
            api.GET('/organisations/{organisation}/brokers', {
              params: { path: { organisation: id }, query: { cursor, limit: 200 } },
              signal,
            }),
          ),
        BROKERS_MAX,
      )
      return list.items.map((broker): PlacedBroker => ({ ...broker, organisation: id, role }))
    })
    const answers = await Promise.allSettled(lists)
    const refused = answers.find((answer) => answer.status === 'rejected')
    // One organisation whose list is refused must not hide the brokers of the others.
    if (refused && answers.every((answer) => answer.status === 'rejected')) throw refused.reason
    return answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []))
  },
})

/** A broker by its name alone, which is unique in the region. */
export const brokerQuery = (name: string) =>
  queryOptions({
    queryKey: ['broker', name],
    // Each retry would clear the error, and until it fails the navigation would show the pages of the missing broker.
    refetchInterval: ({ state: { error } }: { state: { error: Error | null } }) =>
      isMissing(error) ? (false as const) : 30_000,
    queryFn: async ({ client, signal }): Promise<PlacedBroker> => {
      const me = await client.fetchQuery(meQuery)
      for (const { id, role } of me?.organisations ?? []) {
        try {
          const path = { organisation: id, broker: name }
          const options = { params: { path }, signal }
          const broker = await body(api.GET('/organisations/{organisation}/brokers/{broker}', options))
          return { ...broker, organisation: id, role }
        } catch (error) {
          if (!(error instanceof Problem && error.status === 404)) throw error
        }
      }
      throw new Problem({ status: 404, detail: `There is no broker ${name}, or you may not see it` })
    },
  })

/** The broker that the address names; undefined once the server has answered that there is none. */
export function useNamedBroker(): string | undefined {
  const { broker } = useParams({ strict: false })
  const { error } = useQuery({ ...brokerQuery(broker ?? ''), enabled: broker !== undefined })
  return isMissing(error) ? undefined : broker
}

export const deleteBroker = (path: BrokerPath) =>
  body(
    api.DELETE('/organisations/{organisation}/brokers/{broker}', {
      params: { path, header: { 'If-Match': '*' } },
    }),
  )

/** The broker of the address. The page around has loaded it. */
export function useBroker() {
  const { broker: name } = useParams({ from: '/signed-in/b/$broker' })
  const { data } = useQuery(brokerQuery(name))
  if (!data) throw new Error('the broker of this page is not loaded')
  const path: BrokerPath = { organisation: data.organisation, broker: name }
  const endpoint = endpointOf(data, location.protocol === 'https:')
  return { broker: data, path, endpoint, can: (permission: Permission) => may(data.role, permission) }
}

/** The organisation of the address, and the signed-in person's permissions in it. */
export function useOrganisation() {
  const { organisation: id } = useParams({ from: '/signed-in/org/$organisation' })
  const membership = useMe().organisations.find((one) => one.id === id)
  if (!membership) throw new Problem({ status: 404, detail: 'You do not belong to this organisation' })
  return { ...membership, can: (permission: Permission) => may(membership.role, permission) }
}
