// Renders the console into the document. Both entries, main for tenants and operator for operators, call it with their pages.
import '@fontsource-variable/inter/wght.css'
import '@fontsource-variable/jetbrains-mono/wght.css'
import './app.css'
import { MantineProvider } from '@mantine/core'
import { Notifications } from '@mantine/notifications'
import { type QueryClient, QueryClientProvider } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { createRoot } from 'react-dom/client'
import { theme, variables } from './theme'
import { Announcements } from './ui/Announcements'
import { keepFocus } from './ui/keepFocus'

export function mount(queryClient: QueryClient, pages: ReactNode) {
  const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content
  // The library that blocks scrolling behind a drawer adds a style, and looks for its nonce under this name.
  Object.assign(globalThis, { __webpack_nonce__: nonce })

  const root = document.getElementById('root')
  if (!root) throw new Error('the page has no root')
  keepFocus(document.body)
  createRoot(root).render(
    <MantineProvider
      theme={theme}
      cssVariablesResolver={variables}
      defaultColorScheme="auto"
      getStyleNonce={() => nonce ?? ''}
    >
      <QueryClientProvider client={queryClient}>
        <Notifications position="bottom-right" />
        <Announcements />
        {pages}
      </QueryClientProvider>
    </MantineProvider>,
  )
}
