import { expect, test } from 'vitest'
import type { Role, Session } from '../api/session'
import { accessOffers, mayCreateBroker } from './offers'

const creates = (role: Role | undefined) => accessOffers(role).some(({ edit }) => edit !== undefined)
const memberAs = (...roles: Role[]) =>
  ({ organisations: roles.map((role) => ({ role })) }) as Pick<Session, 'organisations'>

test.each<[Role | undefined, boolean]>([
  ['owner', true],
  ['operator', true],
  ['viewer', false],
  [undefined, false],
])('the palette offers %s a new credential: %s', (role, expected) => {
  expect(creates(role)).toBe(expected)
})

test('the palette shows a viewer the tabs of the access page', () => {
  expect(accessOffers('viewer').map(({ tab }) => tab)).toContain('credentials')
})

test('the palette offers a new broker to members who may create one somewhere', () => {
  expect(mayCreateBroker(memberAs('viewer'))).toBe(false)
  expect(mayCreateBroker(memberAs())).toBe(false)
  expect(mayCreateBroker(undefined)).toBe(false)
  expect(mayCreateBroker(memberAs('viewer', 'operator'))).toBe(true)
})
