import { expect, test } from 'vitest'
import { filterOf } from './auditFilter'

const none = { actor: '', action: '', from: '', to: '' }

test('what is left empty, or is no day, filters nothing', () => {
  expect(filterOf(none)).toEqual({})
  expect(filterOf({ ...none, actor: ' ', from: '2026', to: '2026-13-45' })).toEqual({})
})

test('a day is whole: the filter ends with the begin of the next day', () => {
  const { from, to } = filterOf({ ...none, from: '2026-11-23', to: '2026-11-23' })
  expect(from).toBe(new Date(2026, 10, 23).getTime())
  expect(to).toBe(new Date(2026, 10, 24).getTime())
  expect(filterOf({ ...none, actor: ' ann ', action: 'broker.' })).toEqual({
    actor: 'ann',
    action: 'broker.',
  })
})
