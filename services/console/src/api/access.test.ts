import './pageAddress.testing'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { type AccessSettings, addBan, changeAccess, giveOwnAccess, putNamed, type Rule } from './access'

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

  test.each([false, true])(
    'keeps what was saved in the other form; it overwrites: %j',
    async (overwrites) => {
      const sent = server({ anonymous: false, rules: [] })
      await changeAccess(path, before, { rules: [rule('a')] }, overwrites)
      expect(sent).toEqual([['"7"', { anonymous: false, rules: [rule('a')] }]])
    },
  )

  test('is refused when its own fields were changed, and replaces them only when asked to', async () => {
    const sent = server({ anonymous: false, rules: [rule('b')] })
    const change = { rules: [rule('a')] }
    await expect(changeAccess(path, before, change)).rejects.toMatchObject({ isConflict: true })
    expect(sent).toEqual([])
    await changeAccess(path, before, change, true)
    expect(sent).toEqual([['"7"', { anonymous: false, rules: [rule('a')] }]])
  })
})

describe('something new whose name is taken', () => {
  const path = { organisation: 'o', broker: 'b' }
  const conditions = (request: Request) =>
    request.headers.get('if-match') ?? `not ${request.headers.get('if-none-match')}`

  /** A server that has `stored`, and the conditions of the changes that it was sent. */
  function server(stored: object) {
    const sent: string[] = []
    vi.stubGlobal('fetch', async (request: Request) => {
      if (request.method === 'GET') return Response.json(stored, { headers: { etag: '"7"' } })
      sent.push(conditions(request))
      const status = request.headers.has('if-none-match') ? 412 : 204
      return status === 204
        ? new Response(null, { status })
        : Response.json({ status, detail: 'it was changed' }, { status })
    })
    return sent
  }

  test('is refused, and replaces what is there when asked to', async () => {
    const sent = server({ rules: [] })
    const refused = putNamed(path, 'groups', 'pumps', { rules: [] }, undefined)
    await expect(refused).rejects.toMatchObject({ isConflict: true, isTaken: true })
    await putNamed(path, 'groups', 'pumps', { rules: [] }, undefined, true)
    expect(sent).toEqual(['not *', '*'])
  })

  const LATER = Date.now() + 86_400_000
  test.each([
    ['ended', { client_id: 'pump', until_ms: 5 }, { client_id: 'pump', until_ms: LATER }, true],
    ['is of somebody else and has ended', { user: 'eve', until_ms: 5 }, { client_id: 'pump' }, true],
    ['ends sooner', { client_id: 'pump', until_ms: LATER }, { client_id: 'pump' }, true],
    ['ends later', { client_id: 'pump' }, { client_id: 'pump', until_ms: LATER }, false],
    ['is of somebody else', { user: 'eve' }, { client_id: 'pump' }, false],
  ])('a ban that %s: %j, %j, is replaced: %j', async (_, stored, ban, isReplaced) => {
    const sent = server(stored)
    const asked = addBan(path, 'client-pump', ban)
    if (isReplaced) await asked
    else await expect(asked).rejects.toMatchObject({ isTaken: true })
    expect(sent).toEqual(isReplaced ? ['not *', '"7"'] : ['not *'])
  })
})
