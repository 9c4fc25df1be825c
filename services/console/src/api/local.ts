// The link that `make run` prints: it signs the owner of this machine in, without a form.

import type { QueryClient } from '@tanstack/react-query'
import { Problem } from './problem'
import { type Session, signedIn } from './session'

const LINK = /^#local=(.+)$/

/** Why the link of the log did not sign anybody in; the sign-in page says it. */
export let linkProblem: Problem | null = null

export async function signInFromLink(client: QueryClient) {
  const token = LINK.exec(location.hash)?.[1]
  if (!token) return
  // The token must not stay in the history.
  history.replaceState(null, '', location.pathname)
  try {
    const answer = await fetch('/api/v1/sign-in/local', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ token: decodeURIComponent(token) }),
    })
    if (answer.ok) return signedIn(client, (await answer.json()) as Session)
    const detail = 'The link was made by an earlier run of the server. Use the link of the latest one'
    linkProblem = new Problem({ status: answer.status, detail })
  } catch {
    linkProblem = new Problem({
      status: 0,
      detail: 'The server does not answer. Start it, and open the link again',
    })
  }
}
