import { expect, test } from 'vitest'
import { rates } from './rates'

const of = (...pairs: [number, number][]) => pairs.map(([at_ms, count]) => ({ at_ms, count }))
const count = (sample: { count: number }) => sample.count

test('a counter that moves every other second has an even rate', () => {
  const samples = of(
    [0, 0],
    [1000, 0],
    [2000, 20],
    [3000, 20],
    [4000, 40],
    [5000, 40],
    [6000, 60],
    [8000, 80],
  )
  expect(rates(samples, count).slice(4)).toEqual([10, 10, 10, 10].map((rate) => expect.closeTo(rate, 5)))
})

test('there is no rate before the first report, over a gap, or when the counter falls', () => {
  const samples = of([0, 5], [1000, 5], [2000, 7], [60_000, 900], [62_000, 902], [64_000, 0], [66_000, 4])
  expect(rates(samples, count)).toEqual([null, null, 1, null, 1, null, 2])
})
