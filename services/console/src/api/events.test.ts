import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { whenSignedOut } from './client'
import { eventParser, readEvents } from './events'
import { setSessionOver } from './sessionOver'

const URL = '/api/v1/organisations/1/brokers/default/tail'

/** Answers of the server in turn, the last one again and again. Each answer is made anew, because its body is read once. */
function answers(...made: (() => Response | Error)[]) {
  const asked: string[] = []
  vi.stubGlobal('fetch', async (url: string) => {
    if (!url.endsWith('/tail')) return new Response(null)
    asked.push(url)
    const answer = made[Math.min(asked.length, made.length) - 1]?.()
    if (answer instanceof Error) throw answer
    return answer
  })
  return asked
}

const refusal =
  (status: number, detail: string, headers = {}) =>
  () =>
    Response.json({ type: 'urn:test', title: 'no', status, detail }, { status, headers })
const stream = (text: string) => () => new Response(text)
/** A stream that stays open after `text`. */
const open = (text: string) => () =>
  new Response(new ReadableStream({ start: (to) => to.enqueue(new TextEncoder().encode(text)) }))

function reader() {
  const seen: string[] = []
  const close = readEvents(URL, {
    onOpen: () => seen.push('open'),
    onEvent: (name, data) => seen.push(`${name} ${data}`),
    onLost: (problem) => seen.push(`lost ${problem?.message ?? ''}`),
  })
  return { seen, close }
}

/** The reader's tab, shown or hidden. */
const tab = Object.assign(new EventTarget(), { visibilityState: 'visible' })
function show(state: 'visible' | 'hidden') {
  tab.visibilityState = state
  tab.dispatchEvent(new Event('visibilitychange'))
}

beforeEach(() => {
  vi.useFakeTimers()
  vi.stubGlobal('document', tab)
  show('visible')
})

afterEach(() => {
  vi.useRealTimers()
  vi.unstubAllGlobals()
  setSessionOver(false)
})

test.each([
  ['one event', ['data: a\n\n'], ['message a']],
  ['a name', ['event: begun\ndata: {}\n\n'], ['begun {}']],
  ['a name that does not stay', ['event: end\ndata: 1\n\ndata: 2\n\n'], ['end 1', 'message 2']],
  ['cut inside a line, and inside a line break', ['da', 'ta: a\r', '\n\r', '\n'], ['message a']],
  ['several lines', ['data: a\ndata:  b\ndata\n\n'], ['message a\n b\n']],
  ['comments and other fields', [':\n\nid: 7\nretry: 1\ndata:a\n\n'], ['message a']],
  ['an event that never ends', ['data: a\n'], []],
])('events of a stream: %s', (_, parts, expected) => {
  const seen: string[] = []
  const parse = eventParser((name, data) => seen.push(`${name} ${data}`))
  for (const part of parts) parse(part)
  expect(seen).toEqual(expected)
})

test('a refusal says why, and the stream opens after the time that the server asks for', async () => {
  const asked = answers(refusal(429, 'you have 16 streams', { 'retry-after': '30' }), open('data: a\n\n'))
  const { seen, close } = reader()
  await vi.advanceTimersByTimeAsync(29_000)
  expect(seen).toEqual(['lost You have 16 streams.'])
  expect(asked).toHaveLength(1)
  await vi.advanceTimersByTimeAsync(1_000)
  expect(seen.slice(1)).toEqual(['open', 'message a'])
  close()
})

test('a refusal without a time is followed by another try, not at once', async () => {
  const asked = answers(refusal(503, 'this server has as many streams as it may'))
  const { seen, close } = reader()
  await vi.advanceTimersByTimeAsync(9_000)
  expect(asked).toHaveLength(1)
  await vi.advanceTimersByTimeAsync(2_000)
  expect(asked).toHaveLength(2)
  expect(seen[0]).toBe('lost This server has as many streams as it may.')
  close()
})

test('a stream that ends, and a server that is away, are no refusals, and the next try comes soon', async () => {
  const asked = answers(stream('data: a\n\n'), () => new TypeError('no network'), open('data: b\n\n'))
  const { seen, close } = reader()
  await vi.advanceTimersByTimeAsync(4_000)
  expect(asked).toHaveLength(3)
  expect(seen).toEqual(['open', 'message a', 'lost ', 'lost ', 'open', 'message b'])
  close()
})

test('a session that has ended is said once, and asked for again only after the next sign-in', async () => {
  const asked = answers(refusal(401, 'sign in again'), open(''))
  const ended = vi.fn(() => setSessionOver(true))
  whenSignedOut(ended)
  const { close } = reader()
  await vi.advanceTimersByTimeAsync(60_000)
  expect(ended).toHaveBeenCalledTimes(1)
  expect(asked).toHaveLength(1)
  setSessionOver(false)
  await vi.advanceTimersByTimeAsync(2_000)
  expect(asked).toHaveLength(2)
  close()
})

test('a hidden page gives its stream back, and has it again when it is seen', async () => {
  const asked = answers(open('data: a\n\n'))
  const { seen, close } = reader()
  await vi.advanceTimersByTimeAsync(0)
  show('hidden')
  await vi.advanceTimersByTimeAsync(60_000)
  expect(asked).toHaveLength(1)
  show('visible')
  // The browser may say so twice.
  show('visible')
  await vi.advanceTimersByTimeAsync(0)
  expect(asked).toHaveLength(2)
  expect(seen).toEqual(['open', 'message a', 'lost ', 'open', 'message a'])
  close()
})

test('a stream that is silent for too long has lost its connection, and opens again', async () => {
  const asked = answers(open(':\n\n'), open('data: b\n\n'))
  const { seen, close } = reader()
  await vi.advanceTimersByTimeAsync(44_000)
  expect(seen).toEqual(['open'])
  await vi.advanceTimersByTimeAsync(4_000)
  expect(asked).toHaveLength(2)
  expect(seen).toEqual(['open', 'lost ', 'open', 'message b'])
  close()
})

test('a closed stream says nothing more, and asks for nothing', async () => {
  const asked = answers(stream('data: a\n\n'))
  const { seen, close } = reader()
  close()
  show('visible')
  await vi.advanceTimersByTimeAsync(60_000)
  expect(asked).toHaveLength(1)
  expect(seen).toEqual([])
})
