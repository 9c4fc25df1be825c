import { RouterProvider } from '@tanstack/react-router'
import { mount } from '../mount'
import { queryClient } from './queries'
import { router } from './router'

// The type of `router` is registered for the tenants' router alone, so this one has no matching type.
mount(queryClient, <RouterProvider router={router as never} />)
