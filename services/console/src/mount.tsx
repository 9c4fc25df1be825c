// Shows a router's pages in the page's root element. Both entries, of tenants and of operators, begin with it.
import '@fontsource-variable/inter/wght.css'
import '@fontsource-variable/jetbrains-mono/wght.css'
import './app.css'
import { MantineProvider } from '@mantine/core'
import { Notifications } from '@mantine/notifications'
import { type QueryClient, QueryClientProvider } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { createRoot } from 'react-dom/client'
import { theme, variables } from './theme'

export function mount(queryClient: QueryClient, pages: ReactNode) {
  const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content
  // The library that keeps the page still behind a drawer looks for the nonce under this name.
  Object.assign(globalThis, { __webpack_nonce__: nonce })

  const root = document.getElementById('root')
  if (!root) throw new Error('the page has no root')
  createRoot(root).render(
    <MantineProvider
      theme={theme}
      cssVariablesResolver={variables}
      defaultColorScheme="auto"
      getStyleNonce={() => nonce ?? ''}
    >
      <QueryClientProvider client={queryClient}>
        <Notifications position="bottom-right" />
        {pages}
      </QueryClientProvider>
    </MantineProvider>,
  )
}
