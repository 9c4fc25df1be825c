import '@fontsource-variable/inter/wght.css'
import '@fontsource-variable/jetbrains-mono/wght.css'
import '../app.css'
import { MantineProvider } from '@mantine/core'
import { Notifications } from '@mantine/notifications'
import { QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { createRoot } from 'react-dom/client'
import { theme, variables } from '../theme'
import { queryClient } from './queries'
import { router } from './router'

const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content
// The library that keeps the page still behind a drawer looks for the nonce under this name.
Object.assign(globalThis, { __webpack_nonce__: nonce })

const root = document.getElementById('root')
if (!root) throw new Error('operator.html has no root')
createRoot(root).render(
  <MantineProvider
    theme={theme}
    cssVariablesResolver={variables}
    defaultColorScheme="auto"
    getStyleNonce={() => nonce ?? ''}
  >
    <QueryClientProvider client={queryClient}>
      <Notifications position="bottom-right" />
      <RouterProvider router={router as never} />
    </QueryClientProvider>
  </MantineProvider>,
)
