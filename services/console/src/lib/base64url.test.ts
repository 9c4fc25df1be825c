import { expect, test } from 'vitest'
import { base64url, fromBase64url } from './base64url'

test.each([
  [[], ''],
  [[0], 'AA'],
  [[251, 255], '-_8'],
  [[1, 2, 3], 'AQID'],
])('%j is %s', (bytes, text) => {
  expect(base64url(Uint8Array.from(bytes))).toBe(text)
  expect(Array.from(fromBase64url(text))).toEqual(bytes)
})
