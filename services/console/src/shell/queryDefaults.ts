import type { DefaultOptions } from '@tanstack/react-query'
import { Problem } from '../api/problem'

const RETRY_MS_MAX = 10_000
/** A busy server is asked again this often, with BUSY_MS between, before the page shows that it failed. */
const BUSY_TIMES_MAX = 15
const BUSY_MS = 1_000

function retryMs(times: number, error: unknown) {
  const askedMs = error instanceof Problem ? Math.min((error.retryAfterS ?? 0) * 1_000, RETRY_MS_MAX) : 0
  const ms = error instanceof Problem && error.isBusy ? BUSY_MS : Math.min(500 * 2 ** times, RETRY_MS_MAX)
  // Lists that were refused together must not come again together.
  return Math.max(askedMs, ms) * (1 + Math.random() / 2)
}

/** How queries treat a server that is unreachable or busy. */
export const queryDefaults: DefaultOptions = {
  queries: {
    // Whether the browser has a network says nothing about a server on loopback.
    networkMode: 'always',
    staleTime: 2_000,
    // Queries are repeated while the server is unreachable or busy, and three times if its store does not answer or another part
    // does not work for the moment (503). Other errors would come again.
    retry: (times, error) =>
      error instanceof Problem &&
      (error.isOffline || (error.status === 503 && times < 3) || (error.isBusy && times < BUSY_TIMES_MAX)),
    retryDelay: retryMs,
  },
  mutations: { networkMode: 'always' },
}
