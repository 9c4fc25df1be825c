// Chooses, of a broker's listeners, the address that pages show to devices and that their own MQTT client uses.

import { isLoopback } from '../lib/host'
import type { Schemas } from './client'

export interface Endpoint {
  host: string
  port: number
  tls: boolean
  /** Address for the MQTT client in the page; null when no listener is allowed to this page. */
  wsUrl: string | null
  /** Prefix of the user name, where the host does not name the broker. */
  userPrefix: string
  /** Snippets have no user name: where only this machine reaches the server, its settings ask for none unless they say so. */
  isOpen: boolean
  /** Certificate authority that clients must trust; null if they already do. */
  caPem: string | null
}

/** The address for devices, with TLS if there is a listener for it. Null: the broker has no listener for MQTT over TCP. */
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
    // A host such as acme.localhost names a broker of a service on this machine, which asks for a user name.
    isOpen: !user_prefix && isLoopback(host) && !host.endsWith('.localhost'),
    caPem: ca_pem ?? null,
  }
}
