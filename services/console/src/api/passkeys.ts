// Passkeys (WebAuthn): the calls of the API and of the browser.

import { queryOptions } from '@tanstack/react-query'
import { base64url, fromBase64url } from '../lib/base64url'
import { codeToSend, type Proof, signIn } from './account'
import { api, body, type Schemas } from './client'
import { Problem } from './problem'

export type Passkey = Schemas['Passkey']
export type NewPasskey = Schemas['NewPasskey']
export type PasskeyRequest = Schemas['PasskeyRequest']
type Credential = Schemas['PasskeyCredential']

export const passkeysQuery = queryOptions({
  queryKey: ['me', 'passkeys'],
  queryFn: async ({ signal }) => (await body(api.GET('/me/passkeys', { signal }))).items,
})

/** Whether this page and this browser can use passkeys. `origin` is where the server accepts them. */
export const canUsePasskeys = (origin: string | null | undefined) =>
  origin === location.origin && 'credentials' in navigator && 'PublicKeyCredential' in window

const descriptors = (all: Credential[]): PublicKeyCredentialDescriptor[] =>
  all.map(({ id, transports }) => ({
    id: fromBase64url(id),
    type: 'public-key',
    transports: transports as AuthenticatorTransport[],
  }))

const notDone = (detail: string) => new Problem({ status: 400, detail, fields: [] })

/** The browser does not say whether the person has cancelled or no authenticator has answered. */
function failure(error: unknown) {
  if (!(error instanceof DOMException)) return error
  switch (error.name) {
    case 'InvalidStateError':
      return notDone('This device or security key already holds a passkey of your account')
    case 'NotAllowedError':
    case 'AbortError':
      return notDone('The passkey was not used: it was cancelled, or took too long')
    default:
      return notDone(`The browser cannot use a passkey here: ${error.message}`)
  }
}

async function create(asked: Schemas['PasskeyCreation']) {
  const credential = (await navigator.credentials
    .create({
      publicKey: {
        challenge: fromBase64url(asked.challenge),
        rp: { id: asked.rp_id, name: 'Millrace' },
        user: {
          id: fromBase64url(asked.user_handle),
          name: asked.user_name,
          displayName: asked.user_name,
        },
        pubKeyCredParams: asked.algorithms.map((alg) => ({ alg, type: 'public-key' })),
        excludeCredentials: descriptors(asked.exclude),
        authenticatorSelection: { residentKey: 'preferred', userVerification: 'preferred' },
        attestation: 'none',
        timeout: asked.timeout_ms,
      },
    })
    .catch((error) => Promise.reject(failure(error)))) as PublicKeyCredential
  const response = credential.response as AuthenticatorAttestationResponse
  return {
    client_data: base64url(response.clientDataJSON),
    attestation_object: base64url(response.attestationObject),
    transports: response.getTransports?.() ?? [],
  }
}

/** Lets the person answer a challenge with a passkey. */
async function answer(asked: PasskeyRequest): Promise<Schemas['PasskeyAssertion']> {
  const credential = (await navigator.credentials
    .get({
      publicKey: {
        challenge: fromBase64url(asked.challenge),
        rpId: asked.rp_id,
        allowCredentials: descriptors(asked.credentials),
        userVerification: asked.user_verification as UserVerificationRequirement,
        timeout: asked.timeout_ms,
      },
    })
    .catch((error) => Promise.reject(failure(error)))) as PublicKeyCredential
  const response = credential.response as AuthenticatorAssertionResponse
  return {
    credential_id: base64url(credential.rawId),
    client_data: base64url(response.clientDataJSON),
    authenticator_data: base64url(response.authenticatorData),
    signature: base64url(response.signature),
    user_handle: response.userHandle && base64url(response.userHandle),
  }
}

/** The person's confirmation of a change. Without a code, a passkey answers, if there is one. */
export interface Typed {
  password: string
  code: string
  hasPasskey: boolean
}

async function factorOf({ code, hasPasskey }: Omit<Typed, 'password'>) {
  if (code !== '') return { code: codeToSend(code) }
  if (!hasPasskey) return {}
  return { passkey: await answer(await body(api.POST('/me/passkeys/challenge'))) }
}

export const proofOf = async ({ password, ...factor }: Typed): Promise<Proof> => ({
  password,
  ...(await factorOf(factor)),
})

/** The two requests of an addition. The browser asks the person in between. */
export async function newPasskey(name: string, typed: Typed) {
  const asked = await body(api.POST('/me/passkeys/begin', { body: await proofOf(typed) }))
  return { name, ...(await create(asked)) }
}

/** The recovery codes are shown once, so a repetition needs the key of the first request. */
export const addPasskey = (made: NewPasskey, key: string) =>
  body(api.POST('/me/passkeys', { params: { header: { 'Idempotency-Key': key } }, body: made }))

const at = (passkey: string) => ({ path: { passkey } })

export const renamePasskey = (passkey: string, name: string) =>
  body(api.PATCH('/me/passkeys/{passkey}', { params: at(passkey), body: { name } }))

export const removePasskey = async (passkey: string, typed: Typed) =>
  body(api.POST('/me/passkeys/{passkey}/remove', { params: at(passkey), body: await proofOf(typed) }))

/** Signs in without a password. */
export async function signInWithPasskey() {
  const asked = await body(api.POST('/sign-in/passkey/challenge'))
  return body(api.POST('/sign-in/passkey', { body: await answer(asked) }))
}

/** Signs in with the password and a passkey. A challenge is answered once, so a repetition asks for another one. */
export async function signInWithBoth(email: string, password: string, first: PasskeyRequest | null) {
  let asked = first
  if (!asked) {
    try {
      return await signIn(email, password)
    } catch (error) {
      if (!(error instanceof Problem && error.passkey)) throw error
      asked = error.passkey
    }
  }
  return signIn(email, password, { passkey: await answer(asked) })
}
