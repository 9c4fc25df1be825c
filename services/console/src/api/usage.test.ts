import { expect, test } from 'vitest'
import { spanOf } from './usage'

const at = (text: string) => Date.parse(`${text}Z`)

test('months begin on the first, in UTC, and a new month follows the last hour of the old one', () => {
  const now = at('2026-01-31T23:59:59')
  const month = { from: at('2026-01-01T00:00'), to: at('2026-02-01T00:00'), step: 'day' }
  expect(spanOf('month', now)).toEqual(month)
  expect(spanOf('last-month', now + 1000)).toEqual(month)
  expect(spanOf('last-month', now)).toEqual({
    from: at('2025-12-01T00:00'),
    to: at('2026-01-01T00:00'),
    step: 'day',
  })
})

test('a range of hours or days ends with the hour that is not over', () => {
  const now = at('2026-03-09T10:20')
  expect(spanOf('24h', now)).toEqual({
    from: at('2026-03-08T11:00'),
    to: at('2026-03-09T11:00'),
    step: 'hour',
  })
  expect(spanOf(undefined, now).to - spanOf(undefined, now).from).toBe(7 * 24 * 3_600_000)
})
