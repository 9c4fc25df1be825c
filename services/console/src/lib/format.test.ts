import { expect, test } from 'vitest'
import { bytes, count, duration, legible, milliseconds, money, plural, relative, si } from './format'

test.each([
  [0, '0'],
  [7, '7'],
  [0.25, '0.3'],
  [999, '999'],
  [999.96, '1.0k'],
  [1234, '1.2k'],
  [-1500, '−1.5k'],
  [2_500_000, '2.5M'],
])('%s in SI is %s', (value, said) => {
  expect(si(value)).toBe(said)
})

test.each([
  [0, '0 B'],
  [1023, '1023 B'],
  [2048, '2.0 KiB'],
  [5 * 1024 ** 2, '5.0 MiB'],
])('%s bytes are %s', (value, said) => {
  expect(bytes(value)).toBe(said)
})

test.each([
  [0, '0 s'],
  [90, '1 min 30 s'],
  [3600, '1 h'],
  [3601, '1 h'],
  [90_061, '1 d 1 h'],
])('%s seconds are %s', (value, said) => {
  expect(duration(value)).toBe(said)
})

test.each([
  ['pump-7', 'pump-7'],
  ['מפעל 🏭 Werk', 'מפעל 🏭 Werk'],
  ['pump-7\u{200B}', 'pump-7\\u{200B}'],
  ['\u{202E}gnorw', '\\u{202E}gnorw'],
  [' a  b\n', '\\u{20}a  b\\u{A}'],
  ['\u{E0041}x', '\\u{E0041}x'],
])('%j is shown as %s', (text, expected) => expect(legible(text)).toBe(expected))

test.each([
  [1000, 1400, 'now'],
  [0, 3000, '3 s ago'],
  [0, 7_200_000, '2 h ago'],
  [60_000, 0, 'in 1 min'],
])('%s seen at %s is %s', (at, now, said) => {
  expect(relative(at, now)).toBe(said)
})

test('what lasts a week ends in 7 d, a second after it began', () => {
  const week = 7 * 86_400_000
  expect(relative(week, 1000)).toBe('in 7 d')
  expect(relative(0, week - 1000)).toBe('6 d ago')
})

test('counts have their noun, money two digits', () => {
  expect(plural(1, 'message')).toBe('1 message')
  expect(plural(18_204, 'message')).toBe('18,204 messages')
  expect([0, 999, 1000, 1_234_567, -1000].map(count)).toEqual(['0', '999', '1,000', '1,234,567', '-1,000'])
  expect(money(1_500_000)).toBe('1.50')
})

test.each([
  [0, '0 ms'],
  [0.25, '0.3 ms'],
  [12, '12.0 ms'],
  [999.94, '999.9 ms'],
  [1500, '1.5 s'],
])('milliseconds of %d are %s', (value, expected) => expect(milliseconds(value)).toBe(expected))
