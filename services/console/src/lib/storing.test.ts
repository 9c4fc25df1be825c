import { expect, test } from 'vitest'
import { storing } from './storing'

test.each([
  ['plant/#', { filter: 'plant/#' }],
  ['$share/pumps/up/+', { filter: '$share/pumps/up/+' }],
  ['$share/#orders/up/+/alarm', { filter: 'up/+/alarm', webhook: 'orders' }],
  ['$share/#orders//', { filter: '/', webhook: 'orders' }],
])('%s is shown in the words of its user', (filter, shown) => expect(storing(filter)).toEqual(shown))
