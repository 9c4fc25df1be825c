// Where clients reach a broker.

import { queryOptions, useQuery } from '@tanstack/react-query'

/** The listeners of the server that this page comes from. */
interface Listeners {
  mqtt: string[]
  ws: string[]
  version: string
}

export const listenersQuery = queryOptions({
  queryKey: ['listeners'],
  staleTime: Number.POSITIVE_INFINITY,
  queryFn: async ({ signal }): Promise<Listeners> => (await fetch('/console.json', { signal })).json(),
})

export interface Endpoint {
  host: string
  port: number
  tls: boolean
  /** For MQTT in the page; null: there is no WebSocket listener. */
  wsUrl: string | null
  /** What comes before the user name, because no server name tells brokers apart here. */
  userPrefix: string
}

export function splitAddress(address: string): { host: string; port: number } {
  const at = address.lastIndexOf(':')
  return { host: address.slice(0, at).replace(/^\[|\]$/g, ''), port: Number(address.slice(at + 1)) }
}

/** Undefined while it is not known, null when the broker has no listener for MQTT. */
export function useEndpoint(broker: string): Endpoint | null | undefined {
  const { data } = useQuery(listenersQuery)
  if (!data) return undefined
  const [mqtt] = data.mqtt
  const [ws] = data.ws
  if (!mqtt) return null
  return {
    ...splitAddress(mqtt),
    tls: false,
    wsUrl: ws ? `ws://${ws}/mqtt` : null,
    userPrefix: broker === 'default' ? '' : `${broker}/`,
  }
}
