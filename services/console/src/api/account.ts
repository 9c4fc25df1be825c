// Second factor, forgotten password, e-mail address and end of the account.

import { queryOptions } from '@tanstack/react-query'
import { api, body, type Schemas } from './client'
import { isLost } from './once'
import { Problem } from './problem'

export type SecondFactor = Schemas['SecondFactor']
/** The secret of an authenticator app, as text and as the address in its QR code. */
export type DeviceKey = Schemas['DeviceKey']
/** A password, and the second factor of an account that has one. */
export type Proof = Schemas['Proof']

export const secondFactorQuery = queryOptions({
  queryKey: ['me', 'second-factor'],
  queryFn: ({ signal }) => body(api.GET('/me/second-factor', { signal })),
})

export const beginSecondFactor = (proof: Proof) => body(api.POST('/me/second-factor', { body: proof }))

const named = (key: string) => ({ header: { 'Idempotency-Key': key } })

/** The recovery codes are shown once, so a repetition needs the key of the first request. */
export const confirmSecondFactor = ({ code }: Schemas['FirstCode'], key: string) =>
  body(api.POST('/me/second-factor/confirm', { params: named(key), body: { code: codeToSend(code) } }))

export const newRecoveryCodes = (proof: Proof, key: string) =>
  body(api.POST('/me/second-factor/recovery-codes', { params: named(key), body: proof }))

export const disableSecondFactor = (proof: Proof) =>
  body(api.POST('/me/second-factor/disable', { body: proof }))

/** Apps show the six digits in two groups. */
export const codeToSend = (code: string) => {
  const joined = code.replace(/\s/g, '')
  return /^\d+$/.test(joined) ? joined : code.trim()
}

export const signIn = (
  email: string,
  password: string,
  factor: Pick<Schemas['SignIn'], 'code' | 'passkey'> = {},
) => body(api.POST('/sign-in', { body: { email, password, ...factor } }))

/** Whether the sign-in form must ask for a second factor: none was sent, or a wrong one. */
export const asksForCode = (error: unknown) =>
  error instanceof Problem && /:second-factor-(required|wrong)$/.test(error.kind)

/** Whether the password was right, and no second factor was sent with it. */
export const isCodeMissing = (error: unknown) =>
  error instanceof Problem && error.kind.endsWith(':second-factor-required')

export const askPasswordReset = (email: string) => body(api.POST('/password-reset', { body: { email } }))

export const resetPassword = (token: string, password: string) =>
  body(api.POST('/password-reset/confirm', { body: { token, password } }))

export const askNewAddress = (change: Schemas['AddressChange']) =>
  body(api.POST('/me/email', { body: change }))

export const confirmAddress = (token: string) => body(api.POST('/me/email/confirm', { body: { token } }))

/** The account's audit log, latest first. */
export const ownAuditPage = (cursor: string | undefined, signal: AbortSignal) =>
  body(api.GET('/me/audit', { params: { query: { cursor, limit: 100 } }, signal }))

export type DeleteProof = Schemas['DeleteAccount']

/** Deletes the account. After a lost answer the server may not know the person any more: then it has done so. */
export function deletion() {
  let mayBeDone = false
  return async (proof: DeleteProof) => {
    try {
      await body(api.POST('/me/delete', { body: proof }))
    } catch (error) {
      const isGone =
        error instanceof Problem && error.status === 401 && !error.kind.includes(':second-factor-')
      if (mayBeDone && isGone) return
      mayBeDone ||= isLost(error)
      throw error
    }
  }
}

/** Makes the account of a sign-up whose e-mail address the link confirms, and signs it in. */
export const confirmSignUp = (token: string, password: string) =>
  body(api.POST('/sign-up/confirm', { body: { token, password } }))
