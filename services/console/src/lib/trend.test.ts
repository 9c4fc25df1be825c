import { expect, test } from 'vitest'
import { si } from './format'
import { trendOf } from './trend'

test.each([
  [[], null],
  [[null, 3, null], null],
  [[3, null, 3], 'steady'],
  // Two values that print the same are equal for a reader.
  [[3.01, 3.02], 'steady'],
  [[null, 3, 12, null], '↑ from 3'],
  [[1500, 0], '↓ from 1.5k'],
])('%j is %s', (values, said) => expect(trendOf(values, si)).toBe(said))
