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
  const raw = id === 'home-assistant'
  const secret =
    id === 'mosquitto' ? `'it'\\''s "se\\cret"'` : raw ? guarded.secret : JSON.stringify(guarded.secret)
  expect(said).toContain(secret)
})

/** They carry the authority itself. */
const EMBEDDED = ['arduino', 'esp-idf', 'node-red']

test.each(SNIPPETS)('$label trusts the authority that the page offers', ({ id, code }) => {
  const trusted = EMBEDDED.includes(id) ? '-----BEGIN CERTIFICATE-----' : CA_FILE
  expect(code({ ...guarded, caPem: '-----BEGIN CERTIFICATE-----' })).toContain(trusted)
  expect(code({ ...open, caPem: '-----BEGIN CERTIFICATE-----' })).not.toContain(trusted)
  expect(code(guarded)).not.toContain(trusted)
})

const caPem = '-----BEGIN CERTIFICATE-----\nTUlsbA==\n-----END CERTIFICATE-----\n'

test('a string of a board has one line for each line of the certificate', () => {
  const certificate = [
    '    "-----BEGIN CERTIFICATE-----\\n"',
    '    "TUlsbA==\\n"',
    '    "-----END CERTIFICATE-----\\n";',
  ].join('\n')
  for (const id of ['arduino', 'esp-idf']) {
    expect(SNIPPETS.find((one) => one.id === id)?.code({ ...guarded, caPem })).toContain(certificate)
  }
})

test('no snippet sends a password without a check of the certificate', () => {
  for (const target of [guarded, { ...guarded, caPem }]) {
    for (const { code } of SNIPPETS)
      expect(code(target)).not.toMatch(/setInsecure|insecure|CERT_NONE|rejectUnauthorized/)
  }
  const arduino = SNIPPETS.find(({ id }) => id === 'arduino')
  expect(arduino?.code(guarded)).toContain('network.useBuiltinCACertBundle()')
  expect(arduino?.code({ ...guarded, caPem })).toContain('network.setCACert(authority)')
})

test('a board needs nothing but its Wi-Fi, and no class that its library has given up', () => {
  for (const { code } of SNIPPETS) expect(code(guarded)).not.toMatch(/PASTE|WiFiClientSecure/)
})

test('Node-RED imports a flow whose wires and settings all exist', () => {
  for (const target of [open, guarded, { ...guarded, caPem }]) {
    const flow = JSON.parse(SNIPPETS.find(({ id }) => id === 'node-red')?.code(target) ?? '')
    const ids = flow.map(({ id }: { id: string }) => id)
    for (const { wires = [], broker, tls, z, type } of flow) {
      const named = [...wires.flat(), ...(type === 'mqtt-broker' ? [tls] : [broker]), z]
      for (const id of named.filter(Boolean)) expect(ids).toContain(id)
    }
  }
})

test.each([
  ['k3v9.mqtt.example', 'k3v9.mqtt.example'],
  ['10.0.0.7', undefined],
  ['::1', undefined],
])('Node-RED names the server %s in TLS only if it has a name', (host, servername) => {
  const flow = JSON.parse(SNIPPETS.find(({ id }) => id === 'node-red')?.code({ ...guarded, host }) ?? '')
  expect(flow.find(({ type }: { type: string }) => type === 'tls-config').servername).toBe(servername)
})
