import { expect, test } from 'vitest'
import type { MessageReceiver, StoredMessage, StoredMessages } from '../api/stored'
import { type Followed, follow, LISTED_MAX, receiptOf } from './follow'

const FILTER = 'hall/#'
const receiver = (client_id: string, state: MessageReceiver['state']): MessageReceiver => ({
  client_id,
  filter: FILTER,
  state,
})

const message = (
  position: string,
  receivers: MessageReceiver[],
  more: Partial<StoredMessage> = {},
): StoredMessage => ({
  position,
  at_ms: 1_000,
  qos: 1,
  payload_bytes: 2,
  expires_at_ms: null,
  filters: [FILTER],
  acknowledged: receivers.filter(({ state }) => state === 'acknowledged').length,
  in_flight: receivers.filter(({ state }) => state === 'in_flight').length,
  waiting: receivers.filter(({ state }) => state === 'waiting').length,
  receivers,
  ...more,
})

const answer = (items: StoredMessage[], trimmed = 0, more: Partial<StoredMessages> = {}): StoredMessages => ({
  items,
  filters: [{ filter: FILTER, subscriptions: 1, trimmed }],
  incomplete: false,
  ...more,
})

/** All answers, the first one at 2 s, each a second after the one before. */
function followed(...answers: StoredMessages[]): Followed {
  let known: Followed | null = null
  for (const [at, one] of answers.entries()) known = follow(known, one, 2_000 + at * 1_000)
  if (!known) throw new Error('no answer')
  return known
}

const whenOf = ({ acknowledged }: Followed, one: StoredMessage, by: MessageReceiver) =>
  acknowledged.get(receiptOf(one, by))

test('an acknowledgement is between the answer before it and the first one with it', () => {
  const [waits, done] = [receiver('a', 'waiting'), receiver('a', 'acknowledged')]
  const last = message('1', [done])
  const known = followed(answer([message('1', [waits])]), answer([last]), answer([last]))
  expect(whenOf(known, last, done)).toEqual({ from: 2_000, to: 3_000 })
})

test('an acknowledgement before the page looked is after the publication', () => {
  const done = receiver('a', 'acknowledged')
  const first = message('1', [done])
  expect(whenOf(followed(answer([first])), first, done)).toEqual({ from: 1_000, to: 2_000 })
})

test.each([
  ['acknowledged', message('1', [receiver('a', 'in_flight')]), answer([])],
  ['expired', message('1', [receiver('a', 'waiting')], { expires_at_ms: 2_500 }), answer([])],
  ['limit', message('1', [receiver('a', 'waiting')]), answer([], 3)],
  ['unsubscribed', message('1', [receiver('a', 'waiting')]), answer([], 0, { filters: [] })],
  ['acknowledged', message('1', [receiver('a', 'acknowledged')]), answer([], 3)],
])('a message leaves the store: %s', (why, before, after) => {
  const [gone] = followed(answer([before]), after).messages
  expect(gone?.gone).toMatchObject({ why, from: 2_000, to: 3_000 })
})

test('a message that left stays with its reason while later answers come', () => {
  const one = message('1', [receiver('a', 'waiting')])
  const two = message('2', [receiver('a', 'waiting')])
  const known = followed(answer([one]), answer([], 4), answer([two], 9))
  expect(known.messages.map(({ position }) => position)).toEqual(['2', '1'])
  expect(known.messages[1]?.gone).toMatchObject({ why: 'limit', removed: 4 })
})

test('an answer that has no place for an earlier message does not say that it is gone', () => {
  const full = Array.from({ length: LISTED_MAX }, (_, at) =>
    message(String(200 - at), [receiver('a', 'waiting')]),
  )
  const early = message('100', [receiver('a', 'waiting')])
  expect(followed(answer([early]), answer(full)).messages).toHaveLength(LISTED_MAX)
  expect(followed(answer([early]), answer([], 0, { incomplete: true })).messages).toHaveLength(0)
})
