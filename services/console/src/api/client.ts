// The client of the API: it sends the CSRF token, and notes whether the server answers and whether the session has ended. Event streams have
// a client of their own (events.ts). Query keys about a broker begin with ['b', NAME], and about an organisation with ['org', ID], so that all
// of them can be invalidated together.

import createClient, { type Middleware } from 'openapi-fetch'
import { learnClock } from '../lib/clock'
import { firstAnswer } from './firstAnswers'
import { answered, silent } from './link'
import { changedMeanwhile, nameTaken, offline, Problem, problemOf } from './problem'
import type { components, paths } from './schema'
import { isSessionOver } from './sessionOver'

export type Schemas = components['schemas']

/** A value and the ETag that a change of it is sent with. An answer without one has `*`, and the change overwrites all others. */
export interface Tagged<T> {
  value: T
  etag: string
}

/** A request without an answer fails after this time. The slowest one, a batch of credentials, takes seconds. */
const ANSWER_MS_MAX = 60_000

let csrfToken: string | null = null
let onSignedOut = () => {}

export const setCsrfToken = (token: string | null | undefined) => {
  csrfToken = token ?? null
}

/** `listener` runs when the server does not know the session any more. */
export const whenSignedOut = (listener: () => void) => {
  onSignedOut = listener
}

const SAFE = new Set(['GET', 'HEAD', 'OPTIONS'])
// These answer 401 for a wrong password, not for an ended session.
const WITHOUT_SESSION = /\/api\/v1\/(sign-in|sign-up|password-reset)/

const endsSession = ({ status, kind }: Problem, pathname: string) =>
  status === 401 && !WITHOUT_SESSION.test(pathname) && !kind.includes(':second-factor-')

/** Returns the problem of a failed answer. Also notes whether the server was reached, and whether the session has ended. */
export async function refusalOf(response: Response, url: string): Promise<Problem> {
  const problem = await problemOf(response)
  if (problem.isOffline) silent()
  else answered()
  if (endsSession(problem, new URL(url, 'http://page').pathname)) onSignedOut()
  return problem
}

const began = new WeakMap<Request, number>()

const session: Middleware = {
  onRequest({ request }) {
    const { pathname } = new URL(request.url)
    // Pages that wait for the next sign-in ask for nothing that the server would refuse.
    if (isSessionOver() && !WITHOUT_SESSION.test(pathname) && pathname !== '/api/v1/me') {
      throw new Problem({ status: 401, detail: 'The session has ended: sign in again' })
    }
    began.set(request, performance.now())
    if (SAFE.has(request.method)) return
    if (csrfToken) request.headers.set('x-csrf-token', csrfToken)
  },
  async onResponse({ request, response }) {
    learnClock(response.headers.get('date'), performance.now() - (began.get(request) ?? 0))
    if (response.ok) return answered()
    throw await refusalOf(response, request.url)
  },
  onError({ error }) {
    if (error instanceof DOMException && error.name === 'AbortError') return
    silent()
    return offline()
  },
}

/** Ends a request whose whole answer takes longer than `ANSWER_MS_MAX` as if the server were not reached. */
async function withinLimit(request: Request) {
  const limit = new AbortController()
  const timer = setTimeout(() => limit.abort(new Error('no answer')), ANSWER_MS_MAX)
  try {
    const answer = await globalThis.fetch(request, {
      signal: AbortSignal.any([request.signal, limit.signal]),
    })
    const { status, statusText, headers } = answer
    const content = await answer.arrayBuffer()
    return new Response(content.byteLength > 0 ? content : null, { status, statusText, headers })
  } finally {
    clearTimeout(timer)
  }
}

export const api = createClient<paths, 'application/json'>({
  baseUrl: '/api/v1',
  // Looked up for each request, so that a test can replace it.
  fetch: (request) => firstAnswer(request) ?? withinLimit(request),
})
api.use(session)

/** The body of an answer. A failed request has thrown its [Problem] before this. */
export async function body<T>(answer: Promise<{ data?: T }>): Promise<T> {
  return (await answer).data as T
}

export async function tagged<T>(answer: Promise<{ data?: T; response: Response }>): Promise<Tagged<T>> {
  const { data, response } = await answer
  return { value: data as T, etag: response.headers.get('etag') ?? '*' }
}

/** The ETag for a change of `before`, which a form has read. Fails when somebody has changed one of the `fields` since then. */
export async function etagOf<T extends object>(
  asked: Promise<Tagged<T>>,
  before: T,
  fields: readonly (keyof T)[] = Object.keys(before) as (keyof T)[],
): Promise<string> {
  const { value, etag } = await asked
  requireSame(value, before, fields)
  return etag
}

/** Fails when `now` differs from `before` in one of the `fields`. */
export function requireSame<T extends object>(now: T, before: T, fields: readonly (keyof T)[]) {
  const said = (one: T) => JSON.stringify(fields.map((field) => one[field] ?? null))
  if (said(now) !== said(before)) throw changedMeanwhile()
}

/** Puts something that has a name. `before` is what the form has read; undefined: nothing of this name may be there. `overwrites`
 * replaces what is there. */
export async function putTagged<T extends object, R>(
  put: (header: { 'If-Match': string } | { 'If-None-Match': string }) => Promise<R>,
  read: () => Promise<Tagged<T>>,
  before: T | undefined,
  overwrites: boolean,
): Promise<R> {
  if (overwrites) return put({ 'If-Match': '*' })
  if (before) return put({ 'If-Match': await etagOf(read(), before) })
  try {
    return await put({ 'If-None-Match': '*' })
  } catch (error) {
    throw error instanceof Problem && error.isConflict ? nameTaken() : error
  }
}

/** A name for a request, so that a repeated click or a retry does nothing twice. */
export const idempotencyKey = () => crypto.randomUUID()

interface Page<T> {
  items: T[]
  next_cursor?: string | null
}

/** Reads a list up to the page that reaches `rowsMax`; `isCut`: more rows are left. */
export async function everything<T>(
  page: (cursor: string | undefined) => Promise<Page<T>>,
  rowsMax: number,
): Promise<{ items: T[]; isCut: boolean }> {
  const items: T[] = []
  let cursor: string | undefined
  do {
    const { items: more, next_cursor } = await page(cursor)
    items.push(...more)
    cursor = next_cursor ?? undefined
  } while (cursor && items.length < rowsMax)
  return { items, isCut: cursor !== undefined }
}
