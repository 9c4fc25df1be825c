// The plan of an organisation, and its limits as texts.

import type { Schemas } from '../api/client'
import { count } from './format'
import { LIMITS, type LimitName } from './limits'

type Plan = Schemas['TenantPlan']

/** The plan of an organisation; null: it has none. */
export const planOf = (plans: readonly Plan[], organisation: string) =>
  plans.find(({ organisations }) => organisations.includes(organisation)) ?? null

/** The limits of a plan that bound something, such as ["Connections", "1,000"]. */
export function limitsOf({ ceiling }: Plan, scope: 'broker' | 'client'): [string, string][] {
  const limits = ceiling[scope] as Partial<Record<LimitName, number | null>> | undefined
  return LIMITS[scope].flatMap(({ name, label, unit }): [string, string][] => {
    const most = limits?.[name]
    return most == null ? [] : [[label, `${count(most)}${unit ? ` ${unit}` : ''}`]]
  })
}
