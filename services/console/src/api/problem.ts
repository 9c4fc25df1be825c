import type { components } from './schema'

type Shown = components['schemas']['Problem']

/** A request that did not work, in words for the person who made it. */
export class Problem extends Error {
  readonly status: number
  readonly fields: Record<string, string>
  readonly requestId: string | null

  constructor(shown: Pick<Shown, 'status' | 'detail' | 'fields'>, requestId: string | null = null) {
    super(sentence(shown.detail))
    this.status = shown.status
    this.fields = Object.fromEntries(
      (shown.fields ?? []).map(({ field, detail }) => [field, sentence(detail)]),
    )
    this.requestId = requestId
  }

  /** The server was not reached at all. */
  get isOffline() {
    return this.status === 0
  }
}

export const offline = () =>
  new Problem({ status: 0, detail: 'The server does not answer. The page tries again by itself.' })

/** The API's details begin in lower case, because they also stand in logs. */
export function sentence(text: string) {
  const trimmed = text.trim()
  const first = trimmed.charAt(0).toUpperCase() + trimmed.slice(1)
  return /[.?!]$/.test(first) ? first : `${first}.`
}

/** A proxy answers so while the server behind it is away. */
const AWAY = new Set([502, 503, 504])

export async function problemOf(response: Response): Promise<Problem> {
  const requestId = response.headers.get('x-request-id')
  try {
    const shown = (await response.clone().json()) as Shown
    if (typeof shown.detail === 'string') return new Problem(shown, requestId)
  } catch {
    // No JSON: a proxy answered.
  }
  if (AWAY.has(response.status)) return offline()
  return new Problem({ status: response.status, detail: `The server answered ${response.status}` }, requestId)
}
