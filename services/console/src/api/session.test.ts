import { expect, test } from 'vitest'
import { may, type Permission, type Role } from './session'

test.each<[Role, Permission, boolean]>([
  ['owner', 'organisation:write', true],
  ['operator', 'organisation:write', false],
  ['operator', 'access:write', true],
  ['viewer', 'clients:write', false],
  ['viewer', 'audit:read', true],
])('%s, %s: %s', (role, permission, expected) => {
  expect(may(role, permission)).toBe(expected)
})
