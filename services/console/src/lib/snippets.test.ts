import { expect, test } from 'vitest'
import { CA_FILE, SNIPPETS, type Target } from './snippets'

const open: Target = {
  host: '127.0.0.1',
  port: 1883,
  tls: false,
  wsUrl: null,
  user: '',
  secret: '',
  clientId: 'esp32-7',
  caPem: null,
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

test.each(SNIPPETS.filter(({ id }) => id !== 'arduino'))(
  '$label trusts the authority that the page offers',
  ({ id, code }) => {
    const file = id === 'esp-idf' ? 'EMBED_TXTFILES millrace-ca.pem' : CA_FILE
    expect(code({ ...guarded, caPem: '-----BEGIN CERTIFICATE-----' })).toContain(file)
    expect(code({ ...open, caPem: '-----BEGIN CERTIFICATE-----' })).not.toContain(CA_FILE)
    expect(code(guarded)).not.toContain(CA_FILE)
  },
)
