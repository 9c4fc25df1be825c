// Whether a broker has access settings of its own: only then does the server look at its credentials.

import { queryOptions, useQuery } from '@tanstack/react-query'
import { accessQuery, setAccess } from './access'
import { type BrokerPath, useBroker } from './brokers'
import { api, tagged } from './client'
import type { Endpoint } from './endpoints'
import { testAccess } from './messages'

/** The API has no field for this. Its access test says what decides: the settings of the server, or rules. */
const QUESTION = { client_id: 'pump-7', action: 'publish', topic: 'hello/world', qos: 0 } as const

/** True: the settings of the server decide who connects, and the broker's credentials count for nothing. */
export const bySettingsQuery = (path: BrokerPath) =>
  queryOptions({
    queryKey: ['b', path.broker, 'access', 'by-settings'],
    queryFn: async () => (await testAccess(path, QUESTION)).decided_by === 'settings',
  })

/** Null: not known yet. */
export function useBySettings(): boolean | null {
  const { path } = useBroker()
  const { data, isError } = useQuery(bySettingsQuery(path))
  return data ?? (isError ? false : null)
}

/** Stores the access settings as they are, which takes the broker out of the settings of the server. */
export async function giveOwnAccess(path: BrokerPath) {
  const at = '/organisations/{organisation}/brokers/{broker}/access'
  const { value, etag } = await tagged(api.GET(at, { params: { path } }))
  const { inForceMs } = await setAccess(path, value, etag)
  // Another person may have switched both off meanwhile.
  return { inForceMs, takesCredentials: value.passwords !== false || value.scram !== false }
}

/** The endpoint for snippets: a broker with access settings of its own wants a credential, unless it admits anonymous clients. */
export function useSnippetEndpoint(): Endpoint | null {
  const { endpoint, path } = useBroker()
  const isAsked = endpoint?.isOpen ?? false
  const { data: isBySettings } = useQuery({ ...bySettingsQuery(path), enabled: isAsked })
  const { data: access } = useQuery({ ...accessQuery(path), enabled: isBySettings === false })
  if (!endpoint?.isOpen || isBySettings !== false) return endpoint
  return { ...endpoint, isOpen: access?.value.anonymous ?? false }
}
