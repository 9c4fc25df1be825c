import { useEffect, useState, useSyncExternalStore } from 'react'
import type { BrokerPath } from '../api/brokers'
import { answered } from '../api/link'
import { fromBase64 } from '../lib/payload'
import { MessageLog } from './log'

interface TailMessage {
  topic: string
  qos: 0 | 1 | 2
  retain: boolean
  payload?: string
  payload_base64?: string
}

/** Pause before a lost stream is opened again. */
const REOPEN_MS = 2000
const utf8 = new TextEncoder()

/** Messages of a broker that match a filter, from the API's event stream; a null filter opens none. */
export function useTail({ organisation, broker }: BrokerPath, filter: string | null) {
  const [log] = useState(() => new MessageLog())
  const [isOpen, setOpen] = useState(false)
  const view = useSyncExternalStore(log.subscribe, log.read)
  useEffect(() => {
    if (filter === null) return
    const at = `/api/v1/organisations/${organisation}/brokers/${encodeURIComponent(broker)}`
    let source: EventSource | undefined
    let again: ReturnType<typeof setTimeout> | undefined
    const close = () => {
      clearTimeout(again)
      source?.close()
      source = undefined
      setOpen(false)
    }
    const open = () => {
      source = new EventSource(`${at}/tail?${new URLSearchParams({ filter })}`)
      source.onopen = () => {
        answered()
        setOpen(true)
      }
      source.addEventListener('message', ({ data }) => {
        const { topic, qos, retain, payload, payload_base64 } = JSON.parse(data) as TailMessage
        const bytes = payload_base64 === undefined ? utf8.encode(payload ?? '') : fromBase64(payload_base64)
        log.add({ topic, qos, retain, payload: bytes, properties: undefined })
      })
      source.addEventListener('dropped', ({ data }) =>
        log.skip((JSON.parse(data) as { messages: number }).messages),
      )
      source.onerror = () => {
        close()
        again = setTimeout(open, REOPEN_MS)
      }
    }
    // A browser opens at most six connections to a server, so a hidden page closes its stream.
    const look = () => {
      if (document.visibilityState === 'hidden') return close()
      if (!source) open()
    }
    look()
    document.addEventListener('visibilitychange', look)
    return () => {
      document.removeEventListener('visibilitychange', look)
      close()
      log.clear()
    }
  }, [organisation, broker, filter, log])
  return { view, isOpen }
}
