import { expect, test } from 'vitest'
import { around } from './around'

const at = (time: string) => ({ at_ms: new Date(time).getTime() })
const rows = [at('2026-11-24T15:26:00'), at('2026-11-24T15:24:59'), at('2026-11-24T15:14:00')]

test('messages within five minutes of a time', () => {
  expect(around(rows, '2026-11-24T15:20')).toEqual([rows[1]])
})

test.each([undefined, '', 'yesterday'])('%s is no time, and leaves all', (time) => {
  expect(around(rows, time)).toEqual(rows)
})
