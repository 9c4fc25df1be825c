import { expect, test } from 'vitest'
import { batchProblem, claimCommands, csvOf, deviceProblems, jsonOf, numbered, pasted } from './fleet'

test('numbered devices begin with the first number, and can be bound to their client id', () => {
  expect(numbered('pump-', 9, 2, true)).toEqual([
    { user: 'pump-9', client_id: 'pump-9' },
    { user: 'pump-10', client_id: 'pump-10' },
  ])
  expect(numbered('pump-', 1, 1, false)).toEqual([{ user: 'pump-1', client_id: null }])
})

test('pasted names stand in lines, of any system, with space around them', () => {
  expect(pasted(' a\r\n\n b,c \nd\r', false).map(({ user }) => user)).toEqual(['a', 'b,c', 'd'])
})

test.each([
  ['a\nb', null],
  ['a\nb\na', 'a is listed twice.'],
  [Array.from({ length: 1_000 }, (_, at) => at).join('\n'), null],
  [
    Array.from({ length: 1_001 }, (_, at) => at).join('\n'),
    'You entered 1,001 names. A batch has at most 1,000.',
  ],
])('the names %j: %s', (text, problem) => {
  expect(batchProblem(pasted(text, true), false)).toBe(problem)
})

test('a batch with SCRAM has fewer devices', () => {
  expect(batchProblem(numbered('pump-', 1, 100, true), true)).toBeNull()
  expect(batchProblem(numbered('pump-', 1, 101, true), true)).toBe(
    'These are 101 names. A batch with SCRAM has at most 100.',
  )
})

test('what is wrong with a device is said with its name', () => {
  const devices = pasted('a\nb', true)
  expect(deviceProblems({ 'devices[1].user': 'Is too long.', group: 'No.' }, devices)).toBe('b: Is too long.')
  expect(deviceProblems({ devices: 'Is empty.' }, devices)).toBe('Is empty.')
  expect(deviceProblems({ group: 'No.' }, devices)).toBeUndefined()
})

test('the files have what devices connect with', () => {
  const logins = [
    { username: 'k3/pump "1", left', client_id: null, password: 'mr_1' },
    { username: 'k3/pump-2', client_id: 'pump-2', password: 'mr_2' },
  ]
  expect(csvOf(logins)).toBe(
    'username,client_id,password\r\n"k3/pump ""1"", left",,mr_1\r\nk3/pump-2,pump-2,mr_2\r\n',
  )
  expect(JSON.parse(jsonOf(logins))).toEqual(logins)
})

test.each([
  ['https://console.example.org', ''],
  ['http://127.0.0.1:8080', ''],
  ['http://192.0.2.7:8080', ' --insecure'],
])('a device claims at %s', (origin, flag) => {
  const { millrace, curl } = claimCommands(origin, 'mlc_x', 'pump-7')
  expect(millrace).toBe(`echo 'mlc_x' | millrace claim pump-7 --url ${origin}${flag}`)
  expect(curl).toMatch(/^key=.*\ncurl --retry 8 --retry-all-errors /)
  expect(curl).toContain(`${origin}/api/v1/claim`)
  expect(curl).toContain(`-d '{"token":"mlc_x","user":"pump-7"}'`)
})
