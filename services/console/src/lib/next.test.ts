import { expect, test } from 'vitest'
import { safeNext } from './next'

test.each([
  ['/b/default/clients?search=a', '/b/default/clients?search=a'],
  [undefined, '/'],
  ['https://elsewhere.example', '/'],
  ['//elsewhere.example', '/'],
  ['/\\elsewhere.example', '/'],
])('after the sign-in %s opens %s', (next, opened) => {
  expect(safeNext(next)).toBe(opened)
})
