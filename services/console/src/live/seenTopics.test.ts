import { expect, test } from 'vitest'
import type { Message } from './log'
import { SeenTopics } from './useSeenTopics'

const message = (id: number, topic: string, size = 2): Message => ({
  id,
  at: id * 1000,
  topic,
  payload: new Uint8Array(size),
  qos: 1,
  retain: false,
  properties: undefined,
})

test('each topic has its last message, and a list that grows is read once', () => {
  const seen = new SeenTopics()
  seen.take([message(2, 'b'), message(1, 'a')])
  seen.take([message(3, 'a', 5), message(2, 'b'), message(1, 'a')])
  seen.flush()
  expect([...seen.read()].map(([topic, { at, bytes }]) => [topic, at, bytes])).toEqual([
    ['a', 3000, 5],
    ['b', 2000, 2],
  ])
})

test('a large payload is not remembered, and neither are topics above the bound', () => {
  const seen = new SeenTopics()
  seen.take([message(1, 'large', 100_000)])
  seen.take(Array.from({ length: 3000 }, (_, at) => message(3001 - at, `t/${at}`)))
  seen.flush()
  expect(seen.read().get('large')?.payload).toBe(null)
  expect(seen.read().size).toBe(2000)
})
