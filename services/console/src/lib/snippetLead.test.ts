import { expect, test } from 'vitest'
import { snippetLead } from './snippetLead'
import { CA_FILE, SNIPPETS, type Target } from './snippets'

const target: Target = {
  host: 'k3v9.mqtt.example',
  port: 8883,
  tls: true,
  wsUrl: null,
  user: 'pump-7',
  secret: 'word',
  clientId: 'pump-7',
  caPem: '-----BEGIN CERTIFICATE-----',
}
const made = { isMade: true, isBySettings: false }

test.each(SNIPPETS)('$label asks for the file of the authority only if it reads it', (snippet) => {
  const lead = snippetLead(snippet, target, made)
  const reads = !['arduino', 'esp-idf', 'node-red', 'home-assistant'].includes(snippet.id)
  expect(lead.includes(CA_FILE)).toBe(reads)
  expect(lead.includes('Wi-Fi')).toBe(snippet.code(target).includes('your Wi-Fi'))
  expect(snippetLead(snippet, { ...target, caPem: null }, made)).not.toContain(CA_FILE)
})

test('a snippet for anonymous clients works as pasted, and one for the password file wants its users', () => {
  const open = { ...target, tls: false, caPem: null, user: '', secret: '' }
  for (const isBySettings of [true, false])
    expect(snippetLead({}, open, { isMade: false, isBySettings })).toBe('The snippet works as pasted.')
  expect(snippetLead({}, target, { isMade: false, isBySettings: true })).toContain('password file')
})

test('a snippet for a board says that the address of this machine alone does not work', () => {
  const here = { ...target, host: '127.0.0.1', tls: false, caPem: null, user: '', secret: '' }
  const login = { isMade: false, isBySettings: false }
  expect(snippetLead({ isBoard: true }, here, login)).toContain('A board does not reach 127.0.0.1')
  expect(snippetLead({}, here, login)).toBe('The snippet works as pasted.')
  expect(snippetLead({ isBoard: true }, { ...here, host: '192.0.2.7' }, login)).toContain('Wi-Fi')
})

test('a credential that nothing takes is not said to work', () => {
  expect(snippetLead({}, target, { isMade: true, isBySettings: true })).toContain('refuses this credential')
  expect(snippetLead({}, target, { isMade: false, isBySettings: false })).toContain('Create a credential')
})
