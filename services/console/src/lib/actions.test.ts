import { expect, test } from 'vitest'
import { actionText, targetText } from './actions'

test.each([
  ['broker.create', 'Broker created'],
  ['spend_cap.reach', 'Spend cap reached'],
  ['client_ca.delete', 'Client CA deleted'],
  ['broker.stop_at_cap', 'Broker stopped at its spend cap'],
  ['person.connect', 'Identity connected'],
  ['sign_in.refuse', 'Sign-in refused'],
  ['claim_token.create', 'Claim token created'],
  ['client.kick', 'Client disconnected'],
  ['webhook.retry_dead_letters', 'Dead letters sent again'],
  ['broker.fly', 'broker.fly'],
])('%s is "%s"', (action, said) => {
  expect(actionText(action)).toBe(said)
})

const ID = '0192d3c4-6f1e-7a10-9b3a-5d2f8e4c7b10'
const entry = { target: ID, actor: { id: null, name: 'ann@example.org' }, details: {} }

test.each([
  [{ ...entry, target: 'pump-7', details: { name: 'other' } }, 'pump-7'],
  [{ ...entry, details: { name: 'deployment' } }, 'deployment'],
  [{ ...entry, details: { before: null, after: { name: 'line 3' } } }, 'line 3'],
  [{ ...entry, actor: { id: ID, name: 'bob@example.org' } }, 'bob@example.org'],
  [entry, ID],
])('a target is said by its name where the entry has one: %j', (one, said) => {
  expect(targetText(one)).toBe(said)
})

test('an organisation is said by the name that the page knows', () => {
  expect(targetText(entry, { [ID]: 'Mill works' })).toBe('Mill works')
})
