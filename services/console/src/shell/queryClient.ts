import { QueryClient } from '@tanstack/react-query'
import { whenSignedOut } from '../api/client'
import { whenBack } from '../api/link'
import { onNotice } from '../api/otherTabs'
import { followOtherTab, sessionEnded } from '../api/session'
import { queryDefaults } from './queryDefaults'

export const queryClient = new QueryClient({ defaultOptions: queryDefaults })

whenSignedOut(() => sessionEnded(queryClient))
onNotice((person) => void followOtherTab(queryClient, person))
whenBack(() => queryClient.invalidateQueries())
