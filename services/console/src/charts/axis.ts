// How high the vertical axis of a chart goes, and which limits it shows.

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

/** The lower limit applies: the broker's own or the plan's. */
export function limitsShown(own: BrokerLimits | undefined, plan: BrokerLimits | undefined): BrokerLimits {
  const lower = (name: keyof BrokerLimits) => {
    const known = [own?.[name], plan?.[name]].filter((one) => one != null)
    return known.length > 0 ? Math.min(...known) : null
  }
  return {
    connections: lower('connections'),
    publishes_per_s: lower('publishes_per_s'),
    publish_bytes_per_s: lower('publish_bytes_per_s'),
  }
}
