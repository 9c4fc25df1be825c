// Chooses, of a broker's listeners, the address that pages show to devices and that their own MQTT client uses.

import type { Schemas } from './client'

export interface Endpoint {
  host: string
  port: number
  tls: boolean
  /** Address for the MQTT client in the page; null when no listener is allowed to this page. */
  wsUrl: string | null
  /** Prefix of the user name, where the host does not name the broker. */
  userPrefix: string
  /** Clients may connect without a user name. */
  isOpen: boolean
  /** Certificate authority that clients must trust; null if they already do. */
  caPem: string | null
}

/** The address for devices, with TLS if there is a listener for it. Null: the broker has no listener for MQTT over TCP. */
export function endpointOf(
  { endpoints, anonymous_allowed }: Pick<Schemas['Broker'], 'endpoints' | 'anonymous_allowed'>,
  isSecurePage: boolean,
): Endpoint | null {
  const way = endpoints?.mqtts ?? endpoints?.mqtt
  if (!endpoints || !way) return null
  const { host, user_prefix, ca_pem, ws, wss } = endpoints
  // A page that came over TLS may not open a connection without it. Another one would gain nothing, and its browser may not trust the
  // authority of a developer's certificate.
  const socket = isSecurePage ? wss : (ws ?? wss)
  return {
    host,
    port: way.port,
    tls: Boolean(endpoints.mqtts),
    wsUrl: socket?.url ?? null,
    userPrefix: user_prefix ?? '',
    // Where the host does not name the broker, the user name does.
    isOpen: anonymous_allowed && !user_prefix,
    caPem: ca_pem ?? null,
  }
}
