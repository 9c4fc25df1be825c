import { expect, test } from 'vitest'
import { ruleText } from './rules'

// A deny rule ignores QoS and RETAIN, and the largest QoS of an allow rule limits nothing.
test.each([
  [{ effect: 'deny', action: 'all', filter: 'secret/#', qos_max: 0, retain: false }, 'deny all secret/#'],
  [{ effect: 'allow', action: 'publish', filter: 'up/%c/#' }, 'allow publish up/%c/#'],
  [
    { effect: 'allow', action: 'publish', filter: 'a', qos_max: 1, retain: false },
    'allow publish a, at most QoS 1, without RETAIN',
  ],
  [{ effect: 'allow', action: 'subscribe', filter: 'a', qos_max: 2, retain: false }, 'allow subscribe a'],
] as const)('%j', (rule, said) => {
  expect(ruleText(rule)).toBe(said)
})
