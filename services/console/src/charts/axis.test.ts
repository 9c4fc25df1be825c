import { expect, test } from 'vitest'
import { limitsShown, mostShown } from './axis'

test('the axis ends at a limit that is near, and below one that is far away', () => {
  expect(mostShown(30, 100)).toBe(100)
  expect(mostShown(30, 10_000)).toBe(30)
  expect(mostShown(120, 100)).toBe(120)
  expect(mostShown(null, null)).toBe(1)
})

test('the lower of the own limit and that of the plan is shown, even if only one exists', () => {
  expect(limitsShown({ connections: 50 }, { connections: 20, publishes_per_s: 7 })).toEqual({
    connections: 20,
    publishes_per_s: 7,
    publish_bytes_per_s: null,
  })
  expect(limitsShown({ connections: 0, publishes_per_s: 9 }, undefined).connections).toBe(0)
})
