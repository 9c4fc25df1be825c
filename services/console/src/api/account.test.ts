import { expect, test } from 'vitest'
import { asksForCode, digits, isResetMailed } from './account'
import { tokenOf } from './linkToken'
import { Problem } from './problem'

test.each([
  ['492 039', '492039'],
  [' 492039 ', '492039'],
  [' k3vx-9m2c-t7qa-hd5w ', 'k3vx-9m2c-t7qa-hd5w'],
])('the code %j is sent as %j', (typed, sent) => {
  expect(digits(typed)).toBe(sent)
})

test.each([
  ['urn:millrace:problem:second-factor-required', true],
  ['urn:millrace:problem:second-factor-wrong', true],
  ['urn:millrace:problem:unauthenticated', false],
])('a refusal of the kind %s asks for a code: %s', (type, expected) => {
  expect(asksForCode(new Problem({ status: 401, detail: 'no', type }))).toBe(expected)
})

test('a server that does not speak of resets mails none', () => {
  expect(isResetMailed(undefined)).toBe(false)
  expect(isResetMailed({ sign_up: 'anybody' })).toBe(false)
  expect(isResetMailed({ password_reset: true })).toBe(true)
})

test.each([
  ['/reset-password', '#token=a-b_c', 'a-b_c'],
  ['/confirm-address', '#token=x', 'x'],
  ['/reset-password', '#token=', null],
  ['/reset-password', '', null],
  ['/sign-in', '#token=x', null],
])('%s%s has the token %j', (pathname, hash, expected) => {
  expect(tokenOf(pathname, hash)).toBe(expected)
})
