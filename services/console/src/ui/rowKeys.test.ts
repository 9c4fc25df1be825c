import { expect, test } from 'vitest'
import { RowKeys } from './rowKeys'

const rows = (from: number, count: number) => Array.from({ length: count }, (_, at) => `row-${from + at}`)
const keysOf = (keys: Map<string, number>) => [...keys.values()]

/** Keys of elements that React moves in the document: those that stood before one that it has already placed. */
function moved(before: number[], after: number[]) {
  let placed = -1
  return after.filter((key) => {
    const at = before.indexOf(key)
    if (at === -1) return false
    if (at < placed) return true
    placed = at
    return false
  })
}

test('a jump draws other rows with the same elements, in the same order', () => {
  const keys = new RowKeys()
  const before = keysOf(keys.assign(rows(0, 20), null, true))
  expect(keysOf(keys.assign(rows(100, 20), null, true))).toEqual(before)
  expect(keysOf(keys.assign(rows(50, 18), null, true))).toEqual(before.slice(0, 18))
})

test('rows that a reload replaced get elements of their own', () => {
  const keys = new RowKeys()
  const before = keysOf(keys.assign(rows(0, 20), null, true))
  for (const key of keysOf(keys.assign(rows(100, 20), null, false))) expect(before).not.toContain(key)
})

test('rows that stay keep their elements, and rows beside them get new ones', () => {
  const keys = new RowKeys()
  const before = keys.assign(rows(0, 10), null, true)
  const after = keys.assign(rows(4, 10), null, true)
  for (const row of rows(4, 6)) expect(after.get(row)).toBe(before.get(row))
  expect(moved(keysOf(before), keysOf(after))).toEqual([])
  for (const row of rows(10, 4)) expect(keysOf(before)).not.toContain(after.get(row))
})

test.each([
  ['from the middle to above all others', rows(0, 10), 'row-5', ['row-5', ...rows(50, 10)]],
  ['from the middle to below all others', rows(50, 10), 'row-55', [...rows(0, 10), 'row-55']],
  ['from above to below', ['row-50', ...rows(90, 10)], 'row-50', [...rows(0, 10), 'row-50']],
  ['from below to above', [...rows(0, 10), 'row-50'], 'row-50', ['row-50', ...rows(90, 10)]],
  ['back into sight', ['row-50', ...rows(90, 10)], 'row-50', rows(45, 10)],
])('the element of the focused row stays where it is: %s', (_, shown, focused, then) => {
  const keys = new RowKeys()
  const before = keys.assign(shown, focused, true)
  const after = keys.assign(then, focused, true)
  const own = after.get(focused)
  expect(own).toBe(before.get(focused))
  expect(moved(keysOf(before), keysOf(after))).not.toContain(own)
  expect(new Set(keysOf(after)).size).toBe(then.length)
})

test('the element of a focused row that ended draws no other row', () => {
  const keys = new RowKeys()
  const own = keys.assign(rows(0, 10), 'row-5', true).get('row-5')
  expect(keysOf(keys.assign(rows(100, 10), 'row-5', true))).not.toContain(own)
})
