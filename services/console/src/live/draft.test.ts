import { expect, test } from 'vitest'
import { correlationBytes, type Draft, EMPTY, messageOf, problemsOf, readDraft, writeDraft } from './draft'
import { draftName, forgetDrafts } from './draftStore'

const draft = (change: Partial<Draft>): Draft => ({ ...EMPTY, topic: 'plant/1', ...change })

/** As much of the browser's storage as drafts need. */
function storage() {
  const kept = new Map<string, string>()
  return {
    get length() {
      return kept.size
    },
    key: (at: number) => [...kept.keys()][at] ?? null,
    getItem: (name: string) => kept.get(name) ?? null,
    setItem: (name: string, value: string) => void kept.set(name, value),
    removeItem: (name: string) => void kept.delete(name),
  }
}

test('each property of MQTT 5.0 is part of the message, and an empty field is none', () => {
  const { payload, properties } = messageOf(
    draft({
      payload: '{"on":true}',
      kind: 'json',
      responseTopic: 'plant/1/answer',
      correlationData: '0x6f37',
      expiry: '60',
      isMarkedText: true,
      userProperties: [
        ['unit', 'C'],
        ['unit', 'F'],
        ['', 'without a name'],
      ],
    }),
  )
  expect(new TextDecoder().decode(payload)).toBe('{"on":true}')
  expect(properties).toEqual({
    contentType: 'application/json',
    responseTopic: 'plant/1/answer',
    correlationData: Uint8Array.of(0x6f, 0x37),
    messageExpiryInterval: 60,
    payloadFormatIndicator: true,
    userProperties: { unit: ['C', 'F'] },
  })
  expect(Object.values(messageOf(draft({})).properties).filter((value) => value !== undefined)).toEqual([])
})

test('a content type that is typed stands before that of JSON', () => {
  const { properties } = messageOf(
    draft({ kind: 'json', payload: '1', contentType: 'application/senml+json' }),
  )
  expect(properties.contentType).toBe('application/senml+json')
})

test('correlation data is text, or bytes behind 0x', () => {
  expect(correlationBytes('order 7')).toEqual(new TextEncoder().encode('order 7'))
  expect(correlationBytes('0X 6f 37')).toEqual(Uint8Array.of(0x6f, 0x37))
  expect(correlationBytes('0x6f3')).toBeNull()
})

test.each<[keyof Draft, Partial<Draft>]>([
  ['topic', { topic: 'plant/+' }],
  ['payload', { kind: 'json', payload: '{' }],
  ['payload', { kind: 'hex', payload: '6' }],
  ['responseTopic', { responseTopic: 'answer/#' }],
  ['correlationData', { correlationData: '0xzz' }],
  ['expiry', { expiry: '1.5' }],
  ['expiry', { expiry: '4294967296' }],
  ['contentType', { contentType: 'x'.repeat(65_536) }],
  ['userProperties', { userProperties: [['unit', 'x'.repeat(65_536)]] }],
])('a wrong %s is named', (field, change) => {
  expect(Object.keys(problemsOf(draft(change)))).toEqual([field])
})

test('a message that is larger than the packets of the broker is named, and one that just fits is not', () => {
  // 1 byte and 2 of the length, 2 and 7 of the topic, 2 of the packet id, 1 of the properties.
  const fits = draft({ payload: 'x'.repeat(1_000 - 15) })
  expect(problemsOf(fits, 1_000)).toEqual({})
  const { payload } = problemsOf({ ...fits, payload: `${fits.payload}é` }, 1_000)
  expect(payload).toContain('1,002 bytes')
  expect(payload).toContain('2 more than the 1,000')
})

test('bytes in hexadecimal are not marked as text', () => {
  const { properties } = messageOf(draft({ isMarkedText: true, kind: 'hex', payload: 'ff' }))
  expect(properties.payloadFormatIndicator).toBeUndefined()
})

test('a draft is there at the next visit; each broker has its own', () => {
  const store = storage()
  const own = draft({ payload: 'hi', userProperties: [['unit', 'C']] })
  writeDraft(store, draftName('ann', 'plant'), own)
  writeDraft(store, draftName('ann', 'mill'), draft({ payload: 'ho' }))
  expect(readDraft(store, draftName('ann', 'plant'))).toEqual(own)
  expect(readDraft(store, draftName('ann', 'mill')).payload).toBe('ho')
})

test('a sign-out removes drafts, and a sign-in those of other people', () => {
  const store = storage()
  store.setItem('other', 'stays')
  for (const user of ['ann', 'bob']) writeDraft(store, draftName(user, 'plant'), draft({ payload: user }))
  forgetDrafts(store, 'bob')
  expect(readDraft(store, draftName('ann', 'plant'))).toEqual(EMPTY)
  expect(readDraft(store, draftName('bob', 'plant')).payload).toBe('bob')
  forgetDrafts(store)
  expect(readDraft(store, draftName('bob', 'plant'))).toEqual(EMPTY)
  expect(store.getItem('other')).toBe('stays')
})

test('a draft that was emptied, is too long or cannot be read counts as none', () => {
  const store = storage()
  writeDraft(store, 'plant', draft({}))
  writeDraft(store, 'plant', EMPTY)
  expect(store.length).toBe(0)
  writeDraft(store, 'plant', draft({ payload: 'x'.repeat(100_000) }))
  expect(store.length).toBe(0)
  for (const text of ['{', 'null', '{"topic":1}', JSON.stringify({ ...EMPTY, userProperties: [1] })]) {
    store.setItem('plant', text)
    expect(readDraft(store, 'plant')).toEqual(EMPTY)
  }
})
