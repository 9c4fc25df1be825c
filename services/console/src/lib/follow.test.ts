import { expect, test } from 'vitest'
import type { MessageReceiver, RemovedMessages, StoredMessage, StoredMessages } from '../api/stored'
import { type Followed, follow, LISTED_MAX, receiptOf, removalAt } from './follow'

const FILTER = 'hall/#'
const receiver = (client_id: string, state: MessageReceiver['state']): MessageReceiver => ({
  client_id,
  filter: FILTER,
  state,
  acknowledged_by_ms: null,
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

const removal = (
  published_from_ms: number,
  published_to_ms: number,
  last_at_ms = 2_900,
): RemovedMessages => ({
  reason: 'queue_size',
  first_at_ms: 2_800,
  last_at_ms,
  published_from_ms,
  published_to_ms,
  messages: 3,
})

const answer = (
  items: StoredMessage[],
  removed: RemovedMessages[] = [],
  more: Partial<StoredMessages> = {},
): StoredMessages => ({
  items,
  filters: [{ filter: FILTER, subscriptions: 1, trimmed: removed.length, removed }],
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
  ['removed', message('1', [receiver('a', 'waiting')]), answer([], [removal(900, 1_100)])],
  ['acknowledged', message('1', [receiver('a', 'waiting')]), answer([], [removal(1_001, 1_100)])],
  ['unsubscribed', message('1', [receiver('a', 'waiting')]), answer([], [], { filters: [] })],
  ['acknowledged', message('1', [receiver('a', 'acknowledged')]), answer([], [removal(900, 1_100)])],
])('a message leaves the store: %s', (why, before, after) => {
  const [gone] = followed(answer([before]), after).messages
  expect(gone?.gone).toMatchObject({ why, from: 2_000, to: 3_000 })
})

test('a message that left stays with its reason while later answers come', () => {
  const one = message('1', [receiver('a', 'waiting')])
  const two = message('2', [receiver('a', 'waiting')])
  const known = followed(
    answer([one]),
    answer([], [removal(900, 1_100)]),
    answer([two], [removal(1_200, 1_300)]),
  )
  expect(known.messages.map(({ position }) => position)).toEqual(['2', '1'])
  expect(known.messages[1]?.gone).toMatchObject({ why: 'removed', removal: removal(900, 1_100) })
})

test('an answer that has no place for an earlier message does not say that it is gone', () => {
  const full = Array.from({ length: LISTED_MAX }, (_, at) =>
    message(String(200 - at), [receiver('a', 'waiting')]),
  )
  const early = message('100', [receiver('a', 'waiting')])
  expect(followed(answer([early]), answer(full)).messages).toHaveLength(LISTED_MAX)
  expect(followed(answer([early]), answer([], [], { incomplete: true })).messages).toHaveLength(0)
})

test('the latest removal of a time is found', () => {
  const [early, late] = [removal(900, 1_100), removal(1_000, 1_200, 3_500)]
  const { filters } = answer([], [early, late])
  expect(removalAt(filters, 950)).toEqual(early)
  expect(removalAt(filters, 1_050)).toEqual(late)
  expect(removalAt(filters, 899)).toBeNull()
})
