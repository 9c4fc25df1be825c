import { expect, test } from 'vitest'
import { bucketsOf, bucketsSince, quantile, samplesOf, total } from './prometheus'

const PAGE = `# HELP a_total Things.
# TYPE a_total counter
a_total{broker="one",reason="too \\"long\\"\\\\"} 3
a_total{broker="two"} 4
up 1
seconds_bucket{le="0.001"} 10
seconds_bucket{le="0.01"} 90
seconds_bucket{le="+Inf"} 100
seconds_sum 1.5
seconds_count 100
nonsense
`

test('samples have names, labels and values', () => {
  const samples = samplesOf(PAGE)
  expect(samples[0]).toEqual({ name: 'a_total', labels: { broker: 'one', reason: 'too "long"\\' }, value: 3 })
  expect(samples).toHaveLength(8)
  expect(total(samples, 'a_total')).toBe(7)
  expect(total(samples, 'up')).toBe(1)
  expect(total(samples, 'missing')).toBeNull()
})

test('a quantile is interpolated in its bucket, and never beyond the last bound', () => {
  const buckets = bucketsOf(samplesOf(PAGE), 'seconds')
  expect(buckets.map(({ count }) => count)).toEqual([10, 90, 100])
  expect(quantile(buckets, 0.5)).toBeCloseTo(0.0055)
  expect(quantile(buckets, 0.05)).toBeCloseTo(0.0005)
  expect(quantile(buckets, 0.99)).toBe(0.01)
  expect(quantile([], 0.5)).toBeNull()
})

test('only values since the last look count, and all after a restart', () => {
  const buckets = (...counts: number[]) => counts.map((count, at) => ({ le: at + 1, count }))
  expect(bucketsSince(buckets(1, 5), buckets(3, 9))).toEqual(buckets(2, 4))
  expect(bucketsSince(buckets(5, 9), buckets(0, 2))).toEqual(buckets(0, 2))
  expect(quantile(bucketsSince(buckets(1, 5), buckets(1, 5)), 0.99)).toBeNull()
})
