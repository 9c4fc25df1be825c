import { QueryClient } from '@tanstack/react-query'
import { whenSignedOut } from '../api/client'
import { whenBack } from '../api/link'
import { meQuery } from '../api/session'
import { queryDefaults } from './queryDefaults'

export const queryClient = new QueryClient({ defaultOptions: queryDefaults })

whenSignedOut(() => queryClient.setQueryData(meQuery.queryKey, null))
whenBack(() => queryClient.invalidateQueries())
