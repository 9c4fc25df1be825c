import { expect, test } from 'vitest'
import { isHostName, isLoopback, urlHost } from './host'

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

test.each([
  ['mqtt.example.org', 'mqtt.example.org'],
  ['::1', '[::1]'],
])('%s stands in a URL as %s', (host, expected) => {
  expect(urlHost(host)).toBe(expected)
})

test.each([
  ['192.168.1.20', true],
  ['mill.local', true],
  ['fe80::1', true],
  ['a b', false],
  ['http://mill', false],
  ['mill.', false],
])('%s is the name of a host: %s', (text, expected) => {
  expect(isHostName(text)).toBe(expected)
})
