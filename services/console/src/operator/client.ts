// The operator API, on the port that served this page.

import createClient, { type Middleware } from 'openapi-fetch'
import { answered, silent } from '../api/link'
import { offline, type Problem, problemOf } from '../api/problem'
import { learnClock } from '../lib/clock'
import type { components, paths } from './schema'

export type Schemas = components['schemas']

/** The tab keeps the token until it is closed. A cookie would be sent to the other ports of this host, too. */
const KEY = 'operator-token'
let token = read()

function read(): string | null {
  try {
    return sessionStorage.getItem(KEY)
  } catch {
    // Storage is blocked: a reload asks again.
    return null
  }
}

/** Null forgets the token. */
export function keepToken(value: string | null) {
  token = value
  try {
    if (value === null) sessionStorage.removeItem(KEY)
    else sessionStorage.setItem(KEY, value)
  } catch {
    // Kept for this page only.
  }
}

export const hasToken = () => token !== null

const began = new WeakMap<Request, number>()

/** Fails with a [Problem], and reports whether the server answers. `from`: when it was asked. */
async function checked(response: Response, from = performance.now()) {
  learnClock(response.headers.get('date'), performance.now() - from)
  if (response.ok) return answered()
  const problem: Problem = await problemOf(response)
  if (problem.isOffline) silent()
  else answered()
  throw problem
}

const middleware: Middleware = {
  onRequest({ request }) {
    began.set(request, performance.now())
    if (token !== null && !request.headers.has('authorization'))
      request.headers.set('authorization', `Bearer ${token}`)
  },
  onResponse: ({ request, response }) => checked(response, began.get(request)),
  onError({ error }) {
    if (error instanceof DOMException && error.name === 'AbortError') return
    silent()
    return offline()
  },
}

export const api = createClient<paths, 'application/json'>({ baseUrl: '/v1/operator' })
api.use(middleware)

/** `/metrics` in Prometheus text. It asks for no token. */
export async function metricsText(signal: AbortSignal): Promise<string> {
  const from = performance.now()
  const response = await fetch('/metrics', { signal }).catch((error: unknown) => {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    silent()
    throw offline()
  })
  await checked(response, from)
  return response.text()
}
