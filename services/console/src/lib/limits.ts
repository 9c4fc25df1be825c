// The limits of a broker and of each client, in the order and with the labels of the settings page.

import type { Schemas } from '../api/client'

type BrokerLimit = keyof Schemas['BrokerLimits']
type ClientLimit = keyof Schemas['ClientLimits']
export type LimitName = BrokerLimit | ClientLimit

interface Limit<N extends LimitName> {
  name: N
  label: string
  unit?: string
}

const BROKER: Limit<BrokerLimit>[] = [
  { name: 'connections', label: 'Connections' },
  { name: 'connects_per_s', label: 'CONNECTs a second' },
  { name: 'publishes_per_s', label: 'Messages published a second' },
  { name: 'publish_bytes_per_s', label: 'Bytes published a second', unit: 'B/s' },
  { name: 'filters_per_s', label: 'Filters subscribed or unsubscribed a second' },
  { name: 'subscriptions', label: 'Subscriptions' },
  { name: 'retained_messages', label: 'Retained messages' },
  { name: 'queue_bytes', label: 'Bytes of all queues', unit: 'B' },
]

const CLIENT: Limit<ClientLimit>[] = [
  { name: 'connects_per_min', label: 'CONNECTs a minute under one client id' },
  { name: 'publishes_per_s', label: 'Messages published a second' },
  { name: 'publish_bytes_per_s', label: 'Bytes published a second', unit: 'B/s' },
  { name: 'packet_bytes', label: 'Largest packet', unit: 'B' },
  { name: 'subscriptions', label: 'Subscriptions of a session' },
  { name: 'queue_messages', label: 'Messages that wait for a session' },
  { name: 'queue_bytes', label: 'Bytes that wait for a session', unit: 'B' },
  { name: 'queue_age_s', label: 'Longest time that a message waits', unit: 's' },
]

export const LIMITS = { broker: BROKER, client: CLIENT }

/** The lower limit applies: the broker's own or its plan's. */
export function lower(own: number | null | undefined, plan: number | null | undefined): number | null {
  const known = [own, plan].filter((limit) => limit != null)
  return known.length > 0 ? Math.min(...known) : null
}
