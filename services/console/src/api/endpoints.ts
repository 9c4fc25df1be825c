// Where clients reach a broker.

import { isLoopback } from '../lib/host'
import type { Schemas } from './client'

export interface Endpoint {
  host: string
  port: number
  tls: boolean
  /** For MQTT in the page; null: there is no listener that this page may use. */
  wsUrl: string | null
  /** Prefix of the user name, where the host does not name the broker. */
  userPrefix: string
  /** Clients need no user name: a server that others can reach asks for one. */
  isOpen: boolean
  /** Certificate authority that clients must trust; null if they already do. */
  caPem: string | null
}

/** The way for devices: with TLS where there is one. Null: the broker has no listener for MQTT over TCP. */
export function endpointOf(
  endpoints: Schemas['Endpoints'] | undefined,
  isSecurePage: boolean,
): Endpoint | null {
  const way = endpoints?.mqtts ?? endpoints?.mqtt
  if (!endpoints || !way) return null
  const { host, user_prefix, ca_pem, ws, wss } = endpoints
  // A page that came over TLS may not open a connection without it.
  const socket = wss ?? (isSecurePage ? null : ws)
  return {
    host,
    port: way.port,
    tls: Boolean(endpoints.mqtts),
    wsUrl: socket?.url ?? null,
    userPrefix: user_prefix ?? '',
    // A name below a domain of endpoints is the name of one broker, even where that domain is this machine's own.
    isOpen: !user_prefix && isLoopback(host) && !host.endsWith('.localhost'),
    caPem: ca_pem ?? null,
  }
}
