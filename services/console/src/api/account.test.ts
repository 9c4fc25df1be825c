import { expect, test } from 'vitest'
import { asksForCode, codeToSend } from './account'
import { isLink, tokenOf } from './linkToken'
import { Problem } from './problem'

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
