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
])('when %s, the repetition carries the same key and input', async (_, lost) => {
  const { sent, ask } = server(always, lost, lost, 'codes')
  await expect(ask('1')).rejects.toBe(lost)
  await expect(ask('1')).rejects.toBe(lost)
  expect(await ask('2')).toBe('codes')
  expect(new Set(sent.map(({ key }) => key)).size).toBe(1)
  expect(sent.map(({ code }) => code)).toEqual(['1', '1', '1'])
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
