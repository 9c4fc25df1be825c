import { RouterProvider } from '@tanstack/react-router'
import { takeLinkToken } from './api/linkToken'
import { signInFromLink } from './api/local'
import { mount } from './mount'
import { router } from './router'
import { queryClient } from './shell/queryClient'

takeLinkToken()
await signInFromLink(queryClient)
mount(queryClient, <RouterProvider router={router} />)
