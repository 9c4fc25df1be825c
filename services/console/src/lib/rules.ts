import type { Schemas } from '../api/client'

/** A rule as one reads it: "allow publish up/%c/#, at most QoS 1, without RETAIN". */
export function ruleText({ effect, action, filter, qos_max, retain }: Schemas['Rule']): string {
  const said = [`${effect} ${action} ${filter}`]
  // A rule that denies does so for every QoS.
  if (effect === 'allow' && qos_max != null && qos_max < 2) said.push(`at most QoS ${qos_max}`)
  if (effect === 'allow' && action !== 'subscribe' && retain === false) said.push('without RETAIN')
  return said.join(', ')
}
