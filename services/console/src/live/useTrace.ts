import { useEffect, useState, useSyncExternalStore } from 'react'
import type { BrokerPath } from '../api/brokers'
import { clientPart } from '../api/clientPart'
import { answered } from '../api/link'
import { type Traced, TraceLog } from './trace'

export type TraceState =
  | { kind: 'off' }
  | { kind: 'connecting' }
  | { kind: 'on'; isConnected: boolean; unanswered: string[] }
  | { kind: 'ended'; reason: string }

const OFF: TraceState = { kind: 'off' }
const REOPEN_MS = 2000

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
    let source: EventSource | undefined
    let again: ReturnType<typeof setTimeout> | undefined
    const open = () => {
      setState({ kind: 'connecting' })
      source = new EventSource(`${at}/clients/${encodeURIComponent(clientPart(client))}/trace`)
      source.onopen = answered
      source.addEventListener('begun', ({ data }) => {
        const { client, unanswered } = JSON.parse(data) as { client: unknown; unanswered: string[] }
        setState({ kind: 'on', isConnected: client !== null, unanswered })
      })
      source.addEventListener('trace', ({ data }) => {
        const event = JSON.parse(data) as Traced
        const isConnected = { CONNACK: event.reason_code === 0, closed: false }[event.kind]
        if (isConnected !== undefined) setState((now) => (now.kind === 'on' ? { ...now, isConnected } : now))
        log.add(event)
      })
      source.addEventListener('left_out', ({ data }) =>
        log.leaveOut((JSON.parse(data) as { events: number }).events),
      )
      source.addEventListener('end', ({ data }) => {
        source?.close()
        setState({ kind: 'ended', reason: (JSON.parse(data) as { reason: string }).reason })
      })
      source.onerror = () => {
        source?.close()
        setState({ kind: 'connecting' })
        again = setTimeout(open, REOPEN_MS)
      }
    }
    open()
    return () => {
      clearTimeout(again)
      source?.close()
    }
  }, [organisation, broker, client, isOn, log])
  return { view, state, log }
}
