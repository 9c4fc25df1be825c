import { useEffect, useState, useSyncExternalStore } from 'react'
import { useEndpoint } from '../api/endpoints'
import { LiveClient, type Login } from './client'

// A credential that was entered for a broker, until the page is closed.
const logins = new Map<string, Login>()

/** A connection of this page to a broker, for as long as it is shown. */
export function useLive(broker: string, filters: readonly string[], qos: 0 | 1 | 2 = 0) {
  const endpoint = useEndpoint(broker)
  const [login, setLogin] = useState(logins.get(broker))
  const [client, setClient] = useState(() => new LiveClient())
  const status = useSyncExternalStore(client.subscribe, client.status)
  const view = useSyncExternalStore(client.log.subscribe, client.log.read)
  const url = endpoint?.wsUrl
  const key = filters.join('\n')

  useEffect(() => {
    client.setFilters(key === '' ? [] : key.split('\n'), qos)
  }, [client, key, qos])

  useEffect(() => {
    if (!url) return
    // One user name stands for the broker where no server name does.
    const prefix = endpoint?.userPrefix ?? ''
    void client.open(url, login && { ...login, username: `${prefix}${login.username}` })
    return () => client.close()
  }, [client, url, endpoint?.userPrefix, login])

  const signIn = (given: Login) => {
    logins.set(broker, given)
    setLogin(given)
    setClient(new LiveClient())
  }
  return { client, status, view, hasListener: url !== null && endpoint !== null, signIn }
}

export type Live = ReturnType<typeof useLive>
