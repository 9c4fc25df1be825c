import { RouterProvider } from '@tanstack/react-router'
import { signInFromLink } from './api/local'
import { mount } from './mount'
import { router } from './router'
import { queryClient } from './shell/queryClient'

await signInFromLink(queryClient)
mount(queryClient, <RouterProvider router={router} />)
