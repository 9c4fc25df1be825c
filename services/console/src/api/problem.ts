import { isUnreachable } from './link'
import type { components } from './schema'

type Shown = components['schemas']['Problem']

/** If a busy server says that it has time within this many seconds, the page waits and tries again. Otherwise it shows a failure. */
const BUSY_S_MAX = 10

const TAKEN = 'taken'

/** A request that did not work, as a text for the person who made it. */
export class Problem extends Error {
  readonly status: number
  /** Which kind of problem it is; empty when the server has not said. */
  readonly kind: string
  readonly fields: Record<string, string>
  /** The challenge for a passkey, where the password was right and the account has one. */
  readonly passkey: Shown['passkey'] | null
  readonly requestId: string | null
  /** After how many seconds the same request may work; null: the server has not said. */
  readonly retryAfterS: number | null

  constructor(
    shown: Pick<Shown, 'status' | 'detail' | 'fields' | 'passkey'> & { type?: string },
    requestId: string | null = null,
    retryAfterS: number | null = null,
  ) {
    super(sentence(shown.detail))
    this.status = shown.status
    this.kind = shown.type ?? ''
    this.fields = Object.fromEntries(
      (shown.fields ?? []).map(({ field, detail }) => [field, sentence(detail)]),
    )
    this.passkey = shown.passkey ?? null
    this.requestId = requestId
    this.retryAfterS = retryAfterS
  }

  /** The server is busy with other requests like this one, and has time soon. A 429 without Retry-After counts, too. */
  get isBusy() {
    return this.status === 429 && (this.retryAfterS ?? 0) <= BUSY_S_MAX
  }

  /** Another tab or person has saved a change since the form read what it shows. */
  get isConflict() {
    return this.status === 412
  }

  /** A form of something new found one of the same name. */
  get isTaken() {
    return this.kind === TAKEN
  }

  /** The server was not reached at all. */
  get isOffline() {
    return this.status === 0
  }
}

/** Whether the thing that was asked for does not exist. */
export const isMissing = (error: unknown) => error instanceof Problem && error.status === 404

/** Null if the thing does not exist. As an error, the query would have no data, and show "loading" at each new attempt. */
export async function orNull<T>(asked: Promise<T>): Promise<T | null> {
  try {
    return await asked
  } catch (error) {
    if (isMissing(error)) return null
    throw error
  }
}

export const changedMeanwhile = () =>
  new Problem({ status: 412, detail: 'Someone else, or you in another tab, changed it in the meantime' })

/** Instead of the refusal of something new whose name is taken. */
export const nameTaken = (detail = 'There is one of this name already') =>
  new Problem({ status: 412, type: TAKEN, detail })

export const offline = () => new Problem({ status: 0, detail: 'The server does not answer.' })

/** The API's details begin in lower case, because they also stand in logs. */
export function sentence(text: string) {
  const trimmed = text.trim()
  const first = trimmed.charAt(0).toUpperCase() + trimmed.slice(1)
  return /[.?!]$/.test(first) ? first : `${first}.`
}

export async function problemOf(response: Response): Promise<Problem> {
  const requestId = response.headers.get('x-request-id')
  const retryAfter = response.headers.get('retry-after')
  // A date is allowed there, too; this server sends seconds.
  const retryAfterS = retryAfter !== null && /^\d+$/.test(retryAfter) ? Number(retryAfter) : null
  try {
    const shown = (await response.clone().json()) as Shown
    if (typeof shown.detail === 'string') return new Problem(shown, requestId, retryAfterS)
  } catch {
    // No JSON: a proxy answered.
  }
  if (isUnreachable(response.status)) return offline()
  const detail = `The server answered ${response.status}`
  return new Problem({ status: response.status, detail }, requestId, retryAfterS)
}
