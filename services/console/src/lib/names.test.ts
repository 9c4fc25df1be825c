import { expect, test } from 'vitest'
import { banName, nameFrom, ownNameFrom } from './names'

test('a name has letters, digits, hyphens and underscores', () => {
  expect(nameFrom(' Pump 7 / north ')).toBe('pump-7-north')
  expect(nameFrom('***')).toBe('unnamed')
  expect(ownNameFrom('pump_7')).toBe('pump_7')
})

test('clients whose ids differ in case, in special characters or at their end have bans of their own', () => {
  const long = 'x'.repeat(70)
  const ids = ['pump-7', 'Pump-7', 'pump/7', 'pump 7', '', '***', `${long}a`, `${long}b`]
  // A client may take the name of another's ban for its id.
  ids.push(banName('Pump-7').replace('client-', ''))
  const names = ids.map(banName)
  expect(new Set(names).size).toBe(ids.length)
  for (const name of names) expect(name).toMatch(/^[a-z0-9_-]{1,64}$/)
  expect(banName('pump-7')).toBe('client-pump-7')
})
