import { expect, test } from 'vitest'
import { brokersFound } from './brokerSearch'

const brokers = [
  { name: 'plant-1', display_name: 'Berlin' },
  { name: 'plant-2', display_name: 'Oslo' },
  { name: 'lab', display_name: 'The berlin lab' },
]
const found = (text: string) => brokersFound(brokers, text).map(({ name }) => name)

test.each([
  ['', ['plant-1', 'plant-2', 'lab']],
  ['  ', ['plant-1', 'plant-2', 'lab']],
  ['PLANT', ['plant-1', 'plant-2']],
  [' berlin ', ['plant-1', 'lab']],
  ['nowhere', []],
])('"%s" finds %j', (text, names) => {
  expect(found(text)).toEqual(names)
})
