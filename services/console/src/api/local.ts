// The link that `make run` prints: it signs the owner of this machine in, without a form.

import type { QueryClient } from '@tanstack/react-query'
import { api, body } from './client'
import { Problem } from './problem'
import { signedIn } from './session'

const LINK = /^#local=(.+)$/

/** Why the link did not sign anybody in. The sign-in page shows it. */
export let localLinkProblem: Problem | null = null

export const isLocalLink = (hash: string) => LINK.test(hash)

export async function signInFromLink(client: QueryClient) {
  const token = LINK.exec(location.hash)?.[1]
  if (!token) return
  // The token must not stay in the history.
  history.replaceState(null, '', location.pathname)
  try {
    return signedIn(
      client,
      await body(api.POST('/sign-in/local', { body: { token: decodeURIComponent(token) } })),
    )
  } catch (error) {
    const status = error instanceof Problem ? error.status : 0
    const detail =
      status === 0
        ? 'The server does not answer. Start it, and open the link again'
        : 'The link was made by an earlier run of the server. Use the link of the latest one'
    localLinkProblem = new Problem({ status, detail })
  }
}
