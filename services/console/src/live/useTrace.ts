// The trace of one client by the API's event stream (SSE); trace.ts keeps its events.

import { useEffect, useState, useSyncExternalStore } from 'react'
import type { BrokerPath } from '../api/brokers'
import { clientPart } from '../api/clientPart'
import { readEvents } from '../api/events'
import { type Traced, TraceLog } from './trace'

export type TraceState =
  | { kind: 'off' }
  | { kind: 'connecting' }
  | { kind: 'on'; isConnected: boolean; unanswered: string[] }
  /** The server refuses the trace now; the page tries again by itself. */
  | { kind: 'refused'; why: string }
  | { kind: 'ended'; reason: string }

const OFF: TraceState = { kind: 'off' }

/** Traces a client while it is on. The server sends events only then. */
export function useTrace({ organisation, broker }: BrokerPath, client: string, isOn: boolean) {
  const [log] = useState(() => new TraceLog())
  const [state, setState] = useState<TraceState>(OFF)
  const view = useSyncExternalStore(log.subscribe, log.read)
  useEffect(() => {
    if (!isOn) {
      setState((now) => (now.kind === 'ended' ? now : OFF))
      return
    }
    const at = `/api/v1/organisations/${organisation}/brokers/${encodeURIComponent(broker)}`
    setState({ kind: 'connecting' })
    const close = readEvents(`${at}/clients/${encodeURIComponent(clientPart(client))}/trace`, {
      // The trace also runs while its page is hidden, because somebody may watch it beside another window.
      isKeptHidden: true,
      onEvent: (name, data) => {
        if (name === 'begun') {
          const { client, unanswered } = JSON.parse(data) as { client: unknown; unanswered: string[] }
          setState({ kind: 'on', isConnected: client !== null, unanswered })
        } else if (name === 'trace') {
          const event = JSON.parse(data) as Traced
          const isConnected = { CONNACK: event.reason_code === 0, closed: false }[event.kind]
          if (isConnected !== undefined)
            setState((now) => (now.kind === 'on' ? { ...now, isConnected } : now))
          log.add(event)
        } else if (name === 'left_out') log.leaveOut((JSON.parse(data) as { events: number }).events)
        else if (name === 'end') {
          close()
          setState({ kind: 'ended', reason: (JSON.parse(data) as { reason: string }).reason })
        }
      },
      onLost: (refusal) =>
        setState(refusal ? { kind: 'refused', why: refusal.message } : { kind: 'connecting' }),
    })
    return close
  }, [organisation, broker, client, isOn, log])
  return { view, state, log }
}
