import { expect, test } from 'vitest'
import { limitsOf, planOf } from './plan'

const small = {
  name: 'small',
  organisations: ['o1'],
  ceiling: { broker: { connections: 1000, publishes_per_s: null }, client: { packet_bytes: 65_536 } },
}

test('an organisation has the plan that lists it', () => {
  const other = { name: 'large', organisations: [], ceiling: {} }
  expect(planOf([other, small], 'o1')?.name).toBe('small')
  expect(planOf([other, small], 'o2')).toBeNull()
})

test('the limits of a plan are those that bound something', () => {
  expect(limitsOf(small, 'broker')).toEqual([['Connections', '1,000']])
  expect(limitsOf(small, 'client')).toEqual([['Largest packet', '65,536 B']])
  expect(limitsOf({ ...small, ceiling: {} }, 'client')).toEqual([])
})
