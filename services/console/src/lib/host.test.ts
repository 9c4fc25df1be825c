import { expect, test } from 'vitest'
import { isLoopback } from './host'

test.each([
  ['localhost', true],
  ['127.0.0.1', true],
  ['127.8.0.1', true],
  ['[::1]', true],
  ['127.0.0.1.example.org', false],
  ['10.0.0.1', false],
])('%s: %s', (host, expected) => {
  expect(isLoopback(host)).toBe(expected)
})
