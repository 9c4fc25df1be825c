// Messages of a broker by the API's event stream (SSE), for pages that only listen. useLive connects by MQTT instead, and can publish.

import { useEffect, useState, useSyncExternalStore } from 'react'
import type { BrokerPath } from '../api/brokers'
import { readEvents } from '../api/events'
import { fromBase64 } from '../lib/payload'
import { MessageLog } from './log'

interface TailMessage {
  topic: string
  qos: 0 | 1 | 2
  retain: boolean
  payload?: string
  payload_base64?: string
}

const utf8 = new TextEncoder()

interface TailState {
  isOpen: boolean
  /** Why the server refuses the stream; null while it does not. */
  refused: string | null
}

const CONNECTING: TailState = { isOpen: false, refused: null }
/** The text of a stream's state for the reader. */
export const tailText = ({ isOpen, refused }: TailState, filter: string) => {
  if (refused !== null) return `${refused} The page tries again by itself.`
  return isOpen ? `Listening to ${filter}` : 'Connecting'
}

/** The kind of the dot before that text. */
export const tailDot = ({ isOpen, refused }: TailState) =>
  refused !== null ? 'refused' : isOpen ? 'connected' : 'lost'

/** Messages of a broker that match a filter, from the API's event stream; a null filter opens none. */
export function useTail({ organisation, broker }: BrokerPath, filter: string | null) {
  const [log] = useState(() => new MessageLog())
  const [state, setState] = useState<TailState>(CONNECTING)
  const view = useSyncExternalStore(log.subscribe, log.read)
  useEffect(() => {
    if (filter === null) return
    const at = `/api/v1/organisations/${organisation}/brokers/${encodeURIComponent(broker)}`
    const close = readEvents(`${at}/tail?${new URLSearchParams({ filter })}`, {
      onOpen: () => setState({ isOpen: true, refused: null }),
      onEvent: (name, data) => {
        if (name === 'message') {
          const { topic, qos, retain, payload, payload_base64 } = JSON.parse(data) as TailMessage
          const bytes = payload_base64 === undefined ? utf8.encode(payload ?? '') : fromBase64(payload_base64)
          log.add({ topic, qos, retain, payload: bytes, properties: undefined })
        } else if (name === 'dropped') log.skip((JSON.parse(data) as { messages: number }).messages)
      },
      onLost: (refusal) => setState({ isOpen: false, refused: refusal?.message ?? null }),
    })
    return () => {
      close()
      setState(CONNECTING)
      log.clear()
    }
  }, [organisation, broker, filter, log])
  return { view, state }
}
