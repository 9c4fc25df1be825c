import { RouterProvider } from '@tanstack/react-router'
import { reloadForLinks, takeLinkToken } from './api/linkToken'
import { signInFromLink } from './api/local'
import { mount } from './mount'
import { router } from './router'
import { queryClient } from './shell/queryClient'

takeLinkToken()
reloadForLinks()
await signInFromLink(queryClient)
mount(queryClient, <RouterProvider router={router} />)
