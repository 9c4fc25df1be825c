import './pageAddress.testing'
import { afterEach, expect, test, vi } from 'vitest'
import { giveOwnAccess } from './waysIn'

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
