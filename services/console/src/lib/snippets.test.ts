import { expect, test } from 'vitest'
import { SNIPPETS, type Target } from './snippets'

const open: Target = {
  host: '127.0.0.1',
  port: 1883,
  tls: false,
  wsUrl: null,
  user: '',
  secret: '',
  clientId: 'esp32-7',
}
const guarded: Target = {
  ...open,
  host: 'k3v9.mqtt.example',
  port: 8883,
  tls: true,
  user: 'esp32-7',
  secret: `it's "se\\cret"`,
}

test.each(SNIPPETS)('$label names the endpoint, and the credential where there is one', ({ id, code }) => {
  expect(code(open)).toContain('127.0.0.1')
  expect(code(open)).not.toMatch(/undefined|-P |set_credentials|username_pw|simpleAuth|SetUser/)
  const said = code(guarded)
  expect(said).toContain('k3v9.mqtt.example')
  expect(said).toContain('8883')
  const raw = id === 'node-red' || id === 'home-assistant'
  const secret =
    id === 'mosquitto' ? `'it'\\''s "se\\cret"'` : raw ? guarded.secret : JSON.stringify(guarded.secret)
  expect(said).toContain(secret)
})
