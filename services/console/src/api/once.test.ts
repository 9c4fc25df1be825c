import { expect, test } from 'vitest'
import { Once } from './once'
import { offline, Problem } from './problem'

const always = () => true
const refused = () => new Problem({ status: 422, detail: 'wrong code' })

/** A server that answers in turn, and what it was sent. */
function server(repeats: (() => boolean) | undefined, ...answers: (string | Error)[]) {
  const sent: { code: string; key: string }[] = []
  const once = new Once(async ({ code }: { code: string }, key: string) => {
    sent.push({ code, key })
    const answer = answers[sent.length - 1]
    if (typeof answer === 'string') return answer
    throw answer
  }, repeats)
  return { sent, ask: (code: string) => once.ask({ code }) }
}

test.each([
  ['the server does not answer', offline()],
  ['the connection breaks within the answer', new TypeError('network error')],
  ['a proxy answers', new Problem({ status: 500, detail: 'no' })],
  ['a proxy has waited too long', new Problem({ status: 408, detail: 'timeout' })],
])('when %s, the repetition carries the same key and input', async (_, lost) => {
  const { sent, ask } = server(always, lost, lost, 'codes')
  await expect(ask('1')).rejects.toBe(lost)
  await expect(ask('1')).rejects.toBe(lost)
  expect(await ask('2')).toBe('codes')
  expect(new Set(sent.map(({ key }) => key)).size).toBe(1)
  expect(sent.map(({ code }) => code)).toEqual(['1', '1', '1'])
})

const unprocessed: [string, Problem][] = [
  ['the session has ended', new Problem({ status: 401, detail: 'sign in again' })],
  ['the role is missing', new Problem({ status: 403, detail: 'your role may not' })],
  ['it is too early', new Problem({ status: 425, detail: 'too early' })],
  ['there were too many requests', new Problem({ status: 429, detail: 'try again in 3 s' }, null, 3)],
]

test.each(unprocessed)(
  'when %s after a lost answer, the key still repeats that request',
  async (_, problem) => {
    const { sent, ask } = server(always, offline(), problem, 'codes')
    await expect(ask('1')).rejects.toThrow()
    await expect(ask('2')).rejects.toBe(problem)
    expect(await ask('3')).toBe('codes')
    expect(sent.map(({ code }) => code)).toEqual(['1', '1', '1'])
    expect(new Set(sent.map(({ key }) => key)).size).toBe(1)
  },
)

test.each(unprocessed)('when %s at first, only the same input repeats the request', async (_, problem) => {
  const { sent, ask } = server(always, problem, problem, 'codes')
  await expect(ask('1')).rejects.toBe(problem)
  await expect(ask('1')).rejects.toBe(problem)
  expect(await ask('2')).toBe('codes')
  expect(sent.map(({ code }) => code)).toEqual(['1', '1', '2'])
  expect(sent[1]?.key).toBe(sent[0]?.key)
  expect(sent[2]?.key).not.toBe(sent[0]?.key)
})

const CHANGED_ROLE =
  'your role has changed since this request was answered: send it with a new Idempotency-Key'
test.each([
  [
    'the code is wrong',
    { status: 401, detail: 'no', type: 'urn:millrace:problem:second-factor-wrong' },
    null,
  ],
  ['only recovery codes are taken', { status: 429, detail: 'too many wrong codes' }, 3_600],
  ['the stored answer is for another role', { status: 403, detail: CHANGED_ROLE }, null],
])('when %s after a lost answer, the new input is sent with a new key', async (_, shown, retryAfterS) => {
  const { sent, ask } = server(always, offline(), new Problem(shown, null, retryAfterS), 'codes')
  await expect(ask('1')).rejects.toThrow()
  expect(await ask('2')).toBe('codes')
  expect(sent.map(({ code }) => code)).toEqual(['1', '1', '2'])
  expect(sent[2]?.key).not.toBe(sent[0]?.key)
})

test('each answer ends the use of its key', async () => {
  const { sent, ask } = server(always, refused(), 'codes', 'more')
  await expect(ask('1')).rejects.toThrow()
  expect(await ask('1')).toBe('codes')
  expect(await ask('1')).toBe('more')
  expect(new Set(sent.map(({ key }) => key)).size).toBe(3)
})

test('after a lost request that the server refuses, the new input is sent with a new key', async () => {
  const { sent, ask } = server(always, offline(), refused(), 'codes')
  await expect(ask('1')).rejects.toThrow()
  expect(await ask('2')).toBe('codes')
  expect(sent.map(({ code }) => code)).toEqual(['1', '1', '2'])
  expect(sent[0]?.key).toBe(sent[1]?.key)
  expect(sent[2]?.key).not.toBe(sent[0]?.key)
})

test('another input is another request unless the caller says otherwise', async () => {
  const { sent, ask } = server(undefined, offline(), offline(), 'made')
  await expect(ask('1')).rejects.toThrow()
  await expect(ask('1')).rejects.toThrow()
  expect(await ask('2')).toBe('made')
  expect(sent.map(({ code }) => code)).toEqual(['1', '1', '2'])
  expect(sent[1]?.key).toBe(sent[0]?.key)
  expect(sent[2]?.key).not.toBe(sent[0]?.key)
})
