import { expect, test } from 'vitest'
import { receiversText, type Stream, streamsSorted, waitingIn, waitingSince } from './streams'

const stream = (filter: string, stored_messages: number, waiting: number | null = null): Stream => ({
  filter,
  subscriptions: 2,
  stored_messages,
  stored_bytes: 0,
  oldest_stored_at_ms: 5,
  group:
    waiting === null
      ? null
      : {
          waiting_messages: waiting,
          waiting_bytes: 0,
          waiting_is_more: waiting > 5,
          oldest_waiting_at_ms: waiting > 0 ? 7 : null,
        },
  trimmed_messages: 0,
})

test('the messages of a group are the ones that its members have not acknowledged', () => {
  expect(waitingIn(stream('a', 9))).toEqual({ messages: 9, isMore: false })
  expect(waitingIn(stream('$share/g/a', 9, 6))).toEqual({ messages: 6, isMore: true })
  expect([stream('a', 9), stream('b', 9, 1), stream('c', 9, 0)].map(waitingSince)).toEqual([5, 7, null])
})

test('messages wait for sessions, for a group of them, or for a webhook', () => {
  const all = [stream('a', 1), stream('$share/g/a', 1, 1), stream('$share/#orders/up/+', 1, 1)]
  expect(all.map(receiversText)).toEqual(['2 sessions', 'group of 2 sessions', 'webhook orders'])
})

test('the stream with the most waiting messages comes first, and a search ignores case', () => {
  const all = [stream('b', 1), stream('a', 1), stream('Plant/#', 3), stream('$share/g/plant/#', 9, 2)]
  const found = (search: string) => streamsSorted(all, search).map(({ filter }) => filter)
  expect(found('')).toEqual(['Plant/#', '$share/g/plant/#', 'a', 'b'])
  expect(found('plant')).toEqual(['Plant/#', '$share/g/plant/#'])
})
