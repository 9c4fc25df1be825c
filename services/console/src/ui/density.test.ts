import { expect, test } from 'vitest'
import { rowHeight } from './density'

test.each([
  [34, 28],
  [44, 32],
  [52, 40],
  [96, 84],
])('a row of %d px has %d px in a compact table', (px, compact) => {
  expect(rowHeight(px, 'spacious')).toBe(px)
  expect(rowHeight(px, 'compact')).toBe(compact)
})
