import './pageAddress.testing'
import { afterEach, expect, test, vi } from 'vitest'
import { giveOwnAccess } from './access'

afterEach(() => vi.unstubAllGlobals())

test.each([
  [{ by_settings: true, anonymous: true, passwords: false, scram: false }, true, [{}]],
  [{ by_settings: false, anonymous: true }, true, []],
  [{ by_settings: false, passwords: false }, true, []],
  [{ by_settings: false, passwords: false, scram: false }, false, []],
])('access %j takes credentials afterwards: %j', async (settings, takesCredentials, sent) => {
  const stored: unknown[] = []
  vi.stubGlobal('fetch', async (request: Request) => {
    if (request.method === 'PUT') stored.push(await request.json())
    return Response.json(settings, { headers: { etag: '"7"' } })
  })
  expect(await giveOwnAccess({ organisation: 'o', broker: 'b' })).toMatchObject({ takesCredentials })
  expect(stored).toEqual(sent)
})
