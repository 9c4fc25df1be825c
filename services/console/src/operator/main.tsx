import { RouterProvider } from '@tanstack/react-router'
import { mount } from '../mount'
import { queryClient } from './queries'
import { router } from './router'

mount(queryClient, <RouterProvider router={router as never} />)
