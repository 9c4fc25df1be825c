import { expect, test } from 'vitest'
import { ownAccessLosses } from './ownAccess'

test('without rules, everybody may do everything once the rules file of the server ends', () => {
  const said = ownAccessLosses({}).join(' ')
  expect(said).toContain('clients without a credential')
  expect(said).toContain('rules_file')
  expect(said).toContain('may publish and subscribe to everything')
})

test('what is about to be saved counts', () => {
  const rules = [{ effect: 'allow', action: 'publish', filter: 'a/#' } as const]
  const said = ownAccessLosses({ anonymous: true, rules }).join(' ')
  expect(said).not.toContain('without a credential')
  expect(said).not.toContain('to everything')
  expect(said).toContain('rules_file')
})
