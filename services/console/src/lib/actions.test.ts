import { expect, test } from 'vitest'
import { actionSaid } from './actions'

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
  expect(actionSaid(action)).toBe(said)
})
