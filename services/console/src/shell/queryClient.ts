import { QueryClient } from '@tanstack/react-query'
import { whenSignedOut } from '../api/client'
import { whenBack } from '../api/link'
import { whenOtherTabTells } from '../api/otherTabs'
import { followOtherTab, sessionEnded } from '../api/session'
import { queryDefaults } from './queryDefaults'

export const queryClient = new QueryClient({ defaultOptions: queryDefaults })

whenSignedOut(() => sessionEnded(queryClient))
whenOtherTabTells((person) => void followOtherTab(queryClient, person))
whenBack(() => queryClient.invalidateQueries())
