import { expect, test } from 'vitest'
import type { Schemas } from './client'
import { endpointOf as endpointOfBroker } from './endpoints'

const local = {
  region: 'local',
  host: '127.0.0.1',
  mqtt: { port: 1883, url: 'mqtt://127.0.0.1:1883' },
  ws: { port: 8083, url: 'ws://127.0.0.1:8083/mqtt' },
}

const endpointOf = (
  endpoints: Schemas['Endpoints'] | undefined,
  isSecurePage: boolean,
  anonymous_allowed = false,
) => endpointOfBroker({ endpoints, anonymous_allowed }, isSecurePage)

test('devices use TLS where there is TLS', () => {
  expect(endpointOf(local, false)).toMatchObject({ port: 1883, tls: false, userPrefix: '' })
  const both = { ...local, mqtts: { port: 8883, url: 'mqtts://b.example:8883' } }
  expect(endpointOf(both, false)).toMatchObject({ port: 8883, tls: true })
})

test('a page that came over TLS opens no connection without it', () => {
  expect(endpointOf(local, false)?.wsUrl).toBe(local.ws.url)
  expect(endpointOf(local, true)?.wsUrl).toBeNull()
  const both = { ...local, wss: { port: 443, url: 'wss://b.example/mqtt' } }
  expect(endpointOf(both, true)?.wsUrl).toBe('wss://b.example/mqtt')
  expect(endpointOf(both, false)?.wsUrl).toBe(local.ws.url)
  expect(endpointOf({ ...both, ws: null }, false)?.wsUrl).toBe('wss://b.example/mqtt')
})

test('a broker without a listener has no endpoint', () => {
  expect(endpointOf(undefined, false)).toBeNull()
  expect(endpointOf({ region: 'local', host: 'a' }, false)).toBeNull()
})

test('a broker that admits anonymous clients is open without a user name, unless that names the broker', () => {
  expect(endpointOf(local, false, true)?.isOpen).toBe(true)
  expect(endpointOf(local, false, false)?.isOpen).toBe(false)
  expect(endpointOf({ ...local, host: 'acme.mqtt.example.org' }, false, true)?.isOpen).toBe(true)
  expect(endpointOf({ ...local, user_prefix: 'acme/' }, false, true)?.isOpen).toBe(false)
})
