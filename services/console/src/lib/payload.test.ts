import { expect, test } from 'vitest'
import { fromBase64, fromHex, preview, shapeOf, shown, toBase64 } from './payload'

const utf8 = (text: string) => new TextEncoder().encode(text)

test.each([
  ['{"a":1}', 'json'],
  ['[1]', 'json'],
  ['{"a":', 'text'],
  ['21.5', 'text'],
  ['', 'text'],
  ['Grüße\n', 'text'],
  ['\u0000\u0001', 'hex'],
])('%j is %s', (text, shape) => {
  expect(shapeOf(utf8(text))).toBe(shape)
})

test('bytes that are no UTF-8 are hexadecimal', () => {
  expect(shapeOf(Uint8Array.of(0xff, 0xfe))).toBe('hex')
  expect(preview(Uint8Array.of(0xff, 0xfe), 20)).toBe('ff fe')
})

test('a preview is one line, and does not break a character', () => {
  expect(preview(utf8('{\n  "a": 1\n}'), 40)).toBe('{ "a": 1 }')
  expect(preview(utf8('x'.repeat(50)), 10)).toBe(`${'x'.repeat(10)}…`)
  expect(preview(utf8(`a${'€'.repeat(100)}`), 10)).toBe(`a${'€'.repeat(9)}…`)
})

test('JSON is indented, bytes stand in lines of sixteen', () => {
  expect(shown(utf8('{"a":1}'), 'json')).toBe('{\n  "a": 1\n}')
  expect(shown(utf8('0123456789abcdef!'), 'hex').split('\n')).toEqual([
    '000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef',
    `000010  21${' '.repeat(45)}  !`,
  ])
})

test('hexadecimal is read with and without spaces', () => {
  expect(fromHex('68 69')).toEqual(utf8('hi'))
  expect(fromHex('6869')).toEqual(utf8('hi'))
  expect(fromHex('')).toEqual(new Uint8Array())
  expect(fromHex('6')).toBeNull()
  expect(fromHex('zz')).toBeNull()
  expect(fromBase64('aGk=')).toEqual(utf8('hi'))
})

test('JSON is indented and keeps its values as they were sent', () => {
  const sent = '{"id":12345678901234567890,"rate":1.10,"a":[1,{"b":"{,}:\\"[x]"}],"none":{},"id":1,"list":[]}'
  expect(shown(utf8(sent), 'json')).toBe(`{
  "id": 12345678901234567890,
  "rate": 1.10,
  "a": [
    1,
    {
      "b": "{,}:\\"[x]"
    }
  ],
  "none": {},
  "id": 1,
  "list": []
}`)
  expect(JSON.stringify(JSON.parse(shown(utf8(sent), 'json')))).toBe(JSON.stringify(JSON.parse(sent)))
  expect(shown(utf8(' "text" '), 'json')).toBe('"text"')
})

test('a payload of any size becomes Base64', () => {
  const bytes = Uint8Array.from({ length: 300_000 }, (_, at) => at % 256)
  const back = fromBase64(toBase64(bytes))
  expect(back.length).toBe(bytes.length)
  expect(back.every((byte, at) => byte === bytes[at])).toBe(true)
  expect(toBase64(new Uint8Array())).toBe('')
})
