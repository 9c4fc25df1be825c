import './pageAddress.testing'
import { environmentManager, QueryClient, QueryObserver } from '@tanstack/react-query'
import { afterEach, expect, test, vi } from 'vitest'
import {
  clearSession,
  clientsWaitedFor,
  consolePages,
  consolePagesQuery,
  devicesOf,
  disconnectClient,
  RECOUNT_MS,
  retainedQuery,
} from './live'
import { isPageClient } from './messages'

afterEach(() => {
  vi.unstubAllGlobals()
  vi.useRealTimers()
})

test.each([
  ['pump-7', 'pump-7'],
  ['plant/pump 7', 'plant%2Fpump%207'],
  ['base64:cHVtcC03', 'base64%3AYmFzZTY0OmNIVnRjQzAz'],
  ['base64:\u00fc\u00ff?>', 'base64%3AYmFzZTY0OsO8w78_Pg'],
  ['.', 'base64%3ALg'],
  ['..', 'base64%3ALi4'],
])('the client %j is named so that no other client is meant', async (id, part) => {
  const asked: string[] = []
  vi.stubGlobal('fetch', async (request: Request) => {
    asked.push(`${request.method} ${new URL(request.url).pathname}`)
    return new Response(null, { status: 204 })
  })
  const path = { organisation: 'o', broker: 'b' }
  await disconnectClient(path, id)
  await clearSession(path, id)
  const broker = '/api/v1/organisations/o/brokers/b'
  expect(asked).toEqual([`DELETE ${broker}/clients/${part}`, `DELETE ${broker}/sessions/${part}`])
})

const page = { client_id: 'console-1', method: 'connect_token', user: 'console:ann@example.org' }

test('a client id, a user or a token alone makes no page of a console', () => {
  expect(isPageClient(page)).toBe(true)
  expect(isPageClient({ ...page, method: 'password' })).toBe(false)
  expect(isPageClient({ ...page, user: 'token:7' })).toBe(false)
  expect(isPageClient({ ...page, user: null })).toBe(false)
})

const answers = (...pages: object[]) => {
  const asked: string[] = []
  vi.stubGlobal('fetch', async (request: Request) => {
    asked.push(new URL(request.url).search)
    return Response.json(pages[asked.length - 1] ?? pages.at(-1))
  })
  return asked
}

test('pages of consoles are counted over all pages of the list', async () => {
  const device = { ...page, method: 'settings' }
  const asked = answers(
    { items: [page, device], next_cursor: 'c', unanswered: [] },
    { items: [page], next_cursor: null, unanswered: [] },
  )
  expect(await consolePages({ organisation: 'o', broker: 'b' })).toEqual({ count: 2, isMore: false })
  expect(asked).toEqual(['?search=console%3A&limit=200', '?search=console%3A&cursor=c&limit=200'])
  answers({ items: Array(200).fill(page), next_cursor: 'c', unanswered: [] })
  expect(await consolePages({ organisation: 'o', broker: 'b' })).toEqual({ count: 1000, isMore: true })
})

test('retained messages behind pages without any are found', async () => {
  const message = { topic: '9/x', qos: 0, payload_bytes: 1 }
  const asked = answers(
    { items: [], next_cursor: 'a' },
    { items: [], next_cursor: 'b' },
    { items: [message], next_cursor: null },
  )
  const query = retainedQuery({ organisation: 'o', broker: 'b' }, '+/x')
  expect(await new QueryClient().fetchQuery(query)).toEqual({ items: [message], isCut: false })
  expect(asked.map((search) => new URLSearchParams(search).get('cursor'))).toEqual([null, 'a', 'b'])
})

test('while a server is silent, no connection is taken for a page', async () => {
  answers({ items: [page], next_cursor: null, unanswered: ['pod-2'] })
  const pages = await consolePages({ organisation: 'o', broker: 'b' })
  expect(pages).toBeNull()
  expect(devicesOf(3, pages)).toBe(3)
  expect(devicesOf(3, { count: 1, isMore: false })).toBe(2)
  expect(devicesOf(3, undefined)).toBeNull()
})

test('a card counts pages when the number of connections changes, and otherwise once a minute', async () => {
  vi.useFakeTimers()
  // Without it an observer outside of a browser has no intervals.
  environmentManager.setIsServer(() => false)
  const asked = answers({ items: [page], next_cursor: null, unanswered: [] })
  const path = { organisation: 'o', broker: 'b' }
  const observer = new QueryObserver(new QueryClient(), consolePagesQuery(path, 3, 'card'))
  const stop = observer.subscribe(() => {})
  for (const connections of [3, 3, 3, 4, 4]) {
    observer.setOptions(consolePagesQuery(path, connections, 'card'))
    await vi.advanceTimersByTimeAsync(5_000)
  }
  expect(asked).toHaveLength(2)
  await vi.advanceTimersByTimeAsync(RECOUNT_MS.card)
  expect(asked).toHaveLength(3)
  stop()
})

test('a page that waits for a device of a user finds it behind many other clients', async () => {
  const named = (client_id: string, user: string) => ({ client_id, user })
  const many = Array.from({ length: 200 }, (_, number) => named(`a${number}`, 'other'))
  vi.stubGlobal('fetch', async (request: Request) => {
    const search = new URL(request.url).searchParams.get('search')
    return Response.json(
      search === null
        ? { items: many, next_cursor: 'more' }
        : { items: [named('z', search)], next_cursor: null },
    )
  })
  const path = { organisation: 'o', broker: 'b' }
  const { items, isCut } = await clientsWaitedFor(path, 'pump-7')
  expect(isCut).toBe(true)
  expect(items.at(-1)).toEqual(named('z', 'pump-7'))
  expect((await clientsWaitedFor(path, undefined)).items).toEqual(many)
})
