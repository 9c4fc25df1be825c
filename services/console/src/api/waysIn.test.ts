import { afterEach, expect, test, vi } from 'vitest'
import { giveOwnAccess } from './waysIn'

// A page has an address that paths are relative to. The client of the API takes `Request` when it is imported.
vi.hoisted(() => {
  const OfThisTest = globalThis.Request
  vi.stubGlobal(
    'Request',
    class extends OfThisTest {
      constructor(url: string, init?: RequestInit) {
        super(new URL(url, 'http://console.test'), init)
      }
    },
  )
})

afterEach(() => vi.unstubAllGlobals())

test.each([
  [{}, true],
  [{ passwords: false }, true],
  [{ passwords: false, scram: false }, false],
])('access settings %j take credentials: %j', async (settings, takesCredentials) => {
  const stored: unknown[] = []
  vi.stubGlobal('fetch', async (request: Request) => {
    if (request.method === 'PUT') stored.push(await request.json())
    return Response.json(settings, { headers: { etag: '"7"' } })
  })
  expect(await giveOwnAccess({ organisation: 'o', broker: 'b' })).toMatchObject({ takesCredentials })
  expect(stored).toEqual([settings])
})
