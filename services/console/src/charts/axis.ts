// How high the vertical axis of a chart goes, and which limits it shows.

import { lower } from '../lib/limits'

interface BrokerLimits {
  connections?: number | null
  publishes_per_s?: number | null
  publish_bytes_per_s?: number | null
}

/** A limit this many times above the highest value would flatten the curves, so the axis ends below the limit. */
const FAR = 5

export function mostShown(highest: number | null | undefined, limit: number | null | undefined): number {
  const most = Math.max(highest ?? 0, 1)
  return limit != null && limit <= most * FAR ? Math.max(most, limit) : most
}

export function limitsShown(own: BrokerLimits | undefined, plan: BrokerLimits | undefined): BrokerLimits {
  return {
    connections: lower(own?.connections, plan?.connections),
    publishes_per_s: lower(own?.publishes_per_s, plan?.publishes_per_s),
    publish_bytes_per_s: lower(own?.publish_bytes_per_s, plan?.publish_bytes_per_s),
  }
}
