// Second factor, forgotten password, e-mail address and end of the account.

import { queryOptions } from '@tanstack/react-query'
import { api, body } from './client'
import { Problem } from './problem'
import type { Session } from './session'

export interface SecondFactor {
  enabled: boolean
  enabled_at: number | null
  recovery_codes_left: number
}

/** The secret of an authenticator app, as text and as the address in its QR code. */
export interface DeviceKey {
  secret: string
  uri: string
}

/** A password, and a code of the device or a recovery code. */
export interface WithCode {
  password: string
  code: string
}

type Answer = Promise<{ data?: unknown }>

/** Routes that the generated client may not know yet: their types stand above. */
const routes = api as unknown as {
  GET: (path: string, options?: { signal: AbortSignal }) => Answer
  POST: (path: string, options: { body: object }) => Answer
}

const post = <T = null>(path: string, sent: object) => body(routes.POST(path, { body: sent })) as Promise<T>

export const secondFactorQuery = queryOptions({
  queryKey: ['me', 'second-factor'],
  queryFn: async ({ signal }) => (await body(routes.GET('/me/second-factor', { signal }))) as SecondFactor,
})

interface RecoveryCodes {
  recovery_codes: string[]
}

export const beginSecondFactor = (password: string) => post<DeviceKey>('/me/second-factor', { password })

export const confirmSecondFactor = (code: string) =>
  post<RecoveryCodes>('/me/second-factor/confirm', { code: digits(code) })

export const newRecoveryCodes = ({ password, code }: WithCode) =>
  post<RecoveryCodes>('/me/second-factor/recovery-codes', { password, code: digits(code) })

export const disableSecondFactor = ({ password, code }: WithCode) =>
  post('/me/second-factor/disable', { password, code: digits(code) })

/** Apps show the six digits in two groups. */
export const digits = (code: string) => {
  const joined = code.replace(/\s/g, '')
  return /^\d+$/.test(joined) ? joined : code.trim()
}

export const signIn = (email: string, password: string, code?: string) =>
  post<Session>('/sign-in', { email, password, ...(code && { code: digits(code) }) })

/** Whether a code is asked for, or another one. */
export const asksForCode = (error: unknown) =>
  error instanceof Problem && /:second-factor-(required|wrong)$/.test(error.kind)

/** Whether the password was right, and no code was sent with it. */
export const isCodeMissing = (error: unknown) =>
  error instanceof Problem && error.kind.endsWith(':second-factor-required')

/** Whether a link for a new password is mailed; otherwise the operator makes one. */
export const isResetMailed = (ways: unknown) =>
  (ways as { password_reset?: boolean } | undefined)?.password_reset === true

export const askPasswordReset = (email: string) => post('/password-reset', { email })

export const resetPassword = (token: string, password: string) =>
  post('/password-reset/confirm', { token, password })

export const askNewAddress = (email: string, password: string) => post('/me/email', { email, password })

export const confirmAddress = (token: string) => post('/me/email/confirm', { token })

export const deleteAccount = (password: string, code: string) =>
  post('/me/delete', { password: password || null, code: code === '' ? null : digits(code) })
