import './pageAddress.testing'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { type AccessSettings, changeAccess, giveOwnAccess, type Rule } from './access'

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

describe('a form of the access settings', () => {
  const path = { organisation: 'o', broker: 'b' }
  const rule = (filter: string): Rule => ({ effect: 'deny', action: 'all', filter })
  const before: AccessSettings = { anonymous: true, rules: [] }

  /** A server that has `stored`, and the settings that it was sent. */
  function server(stored: AccessSettings) {
    const sent: unknown[] = []
    vi.stubGlobal('fetch', async (request: Request) => {
      if (request.method === 'PUT') sent.push([request.headers.get('if-match'), await request.json()])
      return Response.json(stored, { headers: { etag: '"7"' } })
    })
    return sent
  }

  test.each([false, true])('keeps what was saved in the other form; it overwrites: %j', async (overwrites) => {
    const sent = server({ anonymous: false, rules: [] })
    await changeAccess(path, before, { rules: [rule('a')] }, overwrites)
    expect(sent).toEqual([['"7"', { anonymous: false, rules: [rule('a')] }]])
  })

  test('is refused when its own fields were changed, and replaces them only when asked to', async () => {
    const sent = server({ anonymous: false, rules: [rule('b')] })
    const change = { rules: [rule('a')] }
    await expect(changeAccess(path, before, change)).rejects.toMatchObject({ isConflict: true })
    expect(sent).toEqual([])
    await changeAccess(path, before, change, true)
    expect(sent).toEqual([['"7"', { anonymous: false, rules: [rule('a')] }]])
  })
})
