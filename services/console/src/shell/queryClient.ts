import { QueryClient } from '@tanstack/react-query'
import { whenSignedOut } from '../api/client'
import { whenBack } from '../api/link'
import { Problem } from '../api/problem'
import { meQuery } from '../api/session'

const RETRY_MS_MAX = 10_000

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      // Whether the browser has a network says nothing about a server on loopback.
      networkMode: 'always',
      staleTime: 2_000,
      // While the server is away, queries wait for it; all else is an answer that a repetition does not change.
      retry: (times, error) =>
        error instanceof Problem && (error.isOffline || (error.status === 503 && times < 3)),
      retryDelay: (times) => Math.min(500 * 2 ** times, RETRY_MS_MAX),
    },
    mutations: { networkMode: 'always' },
  },
})

whenSignedOut(() => queryClient.setQueryData(meQuery.queryKey, null))
whenBack(() => queryClient.invalidateQueries())
