// Accounts of a provider (OpenID Connect) with which a person signs in.

import { queryOptions } from '@tanstack/react-query'
import { api, body, type Schemas } from './client'
import { Problem } from './problem'

export type Identity = Schemas['Identity']

const KEY = ['me', 'identities']

export const identitiesQuery = queryOptions({
  queryKey: KEY,
  queryFn: async ({ signal }) => (await body(api.GET('/me/identities', { signal }))).items,
})

/** The account that waits for the person's confirmation. Null: there is none, or its ten minutes are over. */
export const pendingIdentityQuery = queryOptions({
  queryKey: [...KEY, 'pending'],
  queryFn: async ({ signal }): Promise<Identity | null> => {
    try {
      return await body(api.GET('/me/identities/pending', { signal }))
    } catch (error) {
      if (error instanceof Problem && error.status === 404) return null
      throw error
    }
  },
})

export const confirmIdentity = () => body(api.POST('/me/identities/pending'))

export const removeIdentity = (identity: string) =>
  body(api.DELETE('/me/identities/{identity}', { params: { path: { identity } } }))

/** Sends the browser to the provider, to connect an account. The browser comes back to /me?identity=pending.
 *
 * The server asks for the password, and for the second factor, when the sign-in is older than ten minutes. */
export async function connectIdentity(proof: Schemas['ConnectIdentity'] = {}) {
  const { location: to } = await body(api.POST('/me/identities', { body: proof }))
  location.assign(to)
}

/** Whether the server asks for the password or a code before it does what was asked. */
export const asksForProof = (error: unknown) =>
  error instanceof Problem &&
  error.status === 422 &&
  ('password' in error.fields || 'code' in error.fields || 'passkey' in error.fields)

/** Sends the browser to the provider, to sign in; with the token of an invitation the person joins by it. */
export async function signInWithProvider(token?: string) {
  const { location: to } = await body(api.POST('/sign-in/oidc', { body: { token: token || null } }))
  location.assign(to)
}
