import './pageAddress.testing'
import { afterEach, expect, test, vi } from 'vitest'
import { asksForCode, codeToSend, deletion } from './account'
import { isLink, tokenOf } from './linkToken'
import { Problem } from './problem'

afterEach(() => vi.unstubAllGlobals())

const refusal = (status: number) => Response.json({ status, detail: 'no' }, { status })

test('a deletion whose answer was lost is done when the server does not know the person any more', async () => {
  const answers = [() => Promise.reject(new TypeError('lost')), async () => refusal(401)]
  vi.stubGlobal('fetch', () => answers.shift()?.())
  const send = deletion()
  await expect(send({ password: 'x' })).rejects.toMatchObject({ isOffline: true })
  await send({ password: 'x' })
})

test('a deletion that is refused is not done', async () => {
  vi.stubGlobal('fetch', async () => refusal(401))
  const send = deletion()
  for (const _ of [1, 2]) await expect(send({ password: 'x' })).rejects.toMatchObject({ status: 401 })
})

test.each([
  ['492 039', '492039'],
  [' 492039 ', '492039'],
  [' k3vx-9m2c-t7qa-hd5w ', 'k3vx-9m2c-t7qa-hd5w'],
])('the code %j is sent as %j', (typed, sent) => {
  expect(codeToSend(typed)).toBe(sent)
})

test.each([
  ['urn:millrace:problem:second-factor-required', true],
  ['urn:millrace:problem:second-factor-wrong', true],
  ['urn:millrace:problem:unauthenticated', false],
])('a refusal of the kind %s asks for a code: %s', (type, expected) => {
  expect(asksForCode(new Problem({ status: 401, detail: 'no', type }))).toBe(expected)
})

test.each([
  ['/reset-password', '#token=a-b_c', 'a-b_c'],
  ['/confirm-address', '#token=x', 'x'],
  ['/confirm', '#x', 'x'],
  ['/confirm', '', null],
  ['/reset-password', '#token=', null],
  ['/reset-password', '', null],
  ['/sign-in', '#token=x', null],
])('%s%s has the token %j', (pathname, hash, expected) => {
  expect(tokenOf(pathname, hash)).toBe(expected)
})

test.each([
  ['/reset-password', '#token=x', true],
  ['/sign-up', '#x', true],
  ['/', '#local=x', true],
  ['/b/default', '#local=x', true],
  ['/b/default', '#content', false],
  ['/sign-up', '', false],
])('a link to %s%s reloads an open page: %s', (pathname, hash, expected) => {
  expect(isLink(pathname, hash)).toBe(expected)
})
