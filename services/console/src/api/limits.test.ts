import { afterEach, expect, test, vi } from 'vitest'
import { fakeServer } from './fakeServer'

// After the module that replaces Request.
const { api, etagOf } = await import('./client')
const { setSessionOver } = await import('./sessionOver')

afterEach(() => {
  setSessionOver(false)
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

test('a request without an end fails after a minute, like one that does not reach the server', async () => {
  vi.useFakeTimers()
  vi.stubGlobal(
    'fetch',
    (_: Request, { signal }: RequestInit) =>
      new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason))),
  )
  const asked = api.POST('/sign-out').then(
    () => null,
    (error) => error,
  )
  await vi.advanceTimersByTimeAsync(59_000)
  vi.stubGlobal('fetch', async () => Response.json({}))
  await vi.advanceTimersByTimeAsync(2_000)
  expect(await asked).toMatchObject({ isOffline: true })
})

test('so does one whose answer begins and never ends', async () => {
  vi.useFakeTimers()
  vi.stubGlobal('fetch', async (request: Request, { signal }: RequestInit = {}) => {
    if (request.method === 'GET') return Response.json({})
    const start = (body: ReadableStreamDefaultController) =>
      signal?.addEventListener('abort', () => body.error(signal.reason))
    return new Response(new ReadableStream({ start }))
  })
  const asked = api.POST('/sign-out').then(
    () => null,
    (error) => error,
  )
  await vi.advanceTimersByTimeAsync(61_000)
  expect(await asked).toMatchObject({ isOffline: true })
})

test('while the session is over, only a sign-in is sent', async () => {
  const sent = fakeServer({ status: 200, body: {} })
  setSessionOver(true)
  await expect(api.POST('/sign-out')).rejects.toMatchObject({ status: 401 })
  expect(sent).toEqual([])
  await api.POST('/sign-in', { body: { email: 'ann@example.org', password: 'x' } })
  expect(sent).toHaveLength(1)
})

const before = { name: 'pumps', rules: [1], group: null as string | null | undefined }

test.each([
  ['the same', { ...before }, undefined, '"7"'],
  ['the same in another order', { group: null, rules: [1], name: 'pumps' }, undefined, '"7"'],
  [
    'a field that is missing instead of null',
    { name: 'pumps', rules: [1], group: undefined },
    undefined,
    '"7"',
  ],
  ['another value', { ...before, rules: [2] }, undefined, null],
  [
    'another value of a field that the form does not change',
    { ...before, name: 'x' },
    ['rules'] as const,
    '"7"',
  ],
])('a change is saved over %s', async (_, now, fields, etag) => {
  const asked = Promise.resolve({ value: now, etag: '"7"' })
  if (etag === null) await expect(etagOf(asked, before, fields)).rejects.toMatchObject({ isConflict: true })
  else expect(await etagOf(asked, before, fields)).toBe(etag)
})
