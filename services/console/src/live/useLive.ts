import { useEffect, useState, useSyncExternalStore } from 'react'
import { isStopped, useBroker } from '../api/brokers'
import { connectToken } from '../api/messages'
import { LiveClient, type Status } from './client'

const STOPPED: Status = { kind: 'refused', why: 'The broker is stopped and accepts no clients.' }

/** A connection of this page to the broker, for as long as it is shown. */
export function useLive(filters: readonly string[], qos: 0 | 1 | 2 = 0) {
  const { broker: shown, path, endpoint, can } = useBroker()
  const isOff = isStopped(shown)
  const [client] = useState(() => new LiveClient())
  const status = useSyncExternalStore(client.subscribe, client.status)
  const { organisation, broker } = path
  const canPublish = can('messages:write')
  const url = endpoint?.wsUrl
  // A text, so that a new array of the same filters changes nothing.
  const key = JSON.stringify(filters)

  useEffect(() => {
    client.setFilters(JSON.parse(key), qos)
  }, [client, key, qos])

  useEffect(() => {
    // A stopped broker refuses each attempt, and would list it among its incidents.
    if (!url || isOff) return
    // The client asks for a new token before each attempt, because a token expires soon.
    void client.open(url, async () => {
      const token = await connectToken({ organisation, broker }, canPublish)
      return { clientId: token.client_id, username: token.username, password: token.password }
    })
    return () => client.close()
  }, [client, url, isOff, organisation, broker, canPublish])

  return { client, status: isOff ? STOPPED : status, hasListener: Boolean(url), canPublish }
}

/** The messages that the page has received. They change several times a second, so only the parts that show them read this. */
export const useReceived = ({ log }: LiveClient) => useSyncExternalStore(log.subscribe, log.read)

export type Live = ReturnType<typeof useLive>
