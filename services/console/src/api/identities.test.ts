import { afterEach, expect, test, vi } from 'vitest'
import { fakeServer } from './fakeServer'
import { asksForProof, connectIdentity } from './identities'
import { proofOf } from './passkeys'
import { Problem } from './problem'

afterEach(() => vi.unstubAllGlobals())

/** A server that gives one answer; what it was sent, and where the browser was sent to. */
function server(status: number, body: object) {
  const assign = vi.fn()
  vi.stubGlobal('location', { assign })
  return { sent: fakeServer({ status, body }), assign }
}

test.each([
  [undefined, {}],
  [{ password: 'secret', code: '' }, { password: 'secret' }],
  [
    { password: 'secret', code: '492 039' },
    { password: 'secret', code: '492039' },
  ],
])('with the proof %j the server is sent %j, and the browser goes to the provider', async (proof, body) => {
  const { sent, assign } = server(200, { location: 'https://login.example/authorize' })
  await connectIdentity(proof && (await proofOf({ ...proof, hasPasskey: false })))
  expect(sent.map((one) => one.body)).toEqual([body])
  expect(assign).toHaveBeenCalledExactlyOnceWith('https://login.example/authorize')
})

test('when the sign-in is old, the browser stays and the answer asks for a proof', async () => {
  const { assign } = server(422, {
    status: 422,
    detail: 'some fields are wrong',
    fields: [{ field: 'password', detail: 'is missing' }],
  })
  const error = await connectIdentity().catch((found: unknown) => found)
  expect(asksForProof(error)).toBe(true)
  expect(assign).not.toHaveBeenCalled()
})

test.each([
  ['a missing code', 422, ['code'], true],
  ['another field', 422, ['name'], false],
  ['no password at all', 403, [], false],
])('a refusal for %s asks for a proof: %s', (_, status, fields, expected) => {
  const wrong = fields.map((field) => ({ field, detail: 'is missing' }))
  expect(asksForProof(new Problem({ status, detail: 'no', fields: wrong }))).toBe(expected)
})

test('a server that does not answer asks for no proof', () => {
  expect(asksForProof(new TypeError('network error'))).toBe(false)
})
