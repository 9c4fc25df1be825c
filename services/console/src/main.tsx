import { RouterProvider } from '@tanstack/react-router'
import { reloadForLinks, takeLinkToken } from './api/linkToken'
import { isLocalLink, signInFromLink } from './api/local'
import { mount } from './mount'
import { loadPagesOf, router } from './router'
import { queryClient } from './shell/queryClient'

takeLinkToken()
reloadForLinks()
// The link of `make run` leads to the overview of the one broker.
loadPagesOf(isLocalLink(location.hash) ? '/b/default' : location.pathname)
await signInFromLink(queryClient)
mount(queryClient, <RouterProvider router={router} />)
