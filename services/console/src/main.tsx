import { RouterProvider } from '@tanstack/react-router'
import { reloadForLinks, takeLinkToken } from './api/linkToken'
import { signInFromLink } from './api/local'
import { mount } from './mount'
import { loadPagesOf, router } from './router'
import { queryClient } from './shell/queryClient'

takeLinkToken()
reloadForLinks()
loadPagesOf(location.pathname)
await signInFromLink(queryClient)
mount(queryClient, <RouterProvider router={router} />)
