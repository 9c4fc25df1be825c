// The modules of the first pages: budget.ts checks the size of what they load, preload.ts names that to the browser, and
// vite.config.ts makes files of these groups.

/** The frame and the overview of a broker, with what the console needs before its pages. */
export const OVERVIEW = [
  'src/api/linkToken.ts',
  'src/api/local.ts',
  'src/shell/queryClient.ts',
  'src/shell/Root.tsx',
  'src/shell/Shell.tsx',
  'src/pages/broker/BrokerFrame.tsx',
  'src/pages/broker/Overview.tsx',
]
/** Everything that a browser runs before the overview of a broker is complete. */
export const FIRST_PAGE = ['src/main.tsx', ...OVERVIEW]
/** The same for operators. */
export const OPERATOR_PAGE = ['src/operator/main.tsx', 'src/operator/Overview.tsx']
/** Modules that both first pages need: one that is missing here costs both of them a further file. */
export const BOTH_PAGES = [
  'src/mount.tsx',
  'src/favicon.svg',
  'src/charts/Sparkline.tsx',
  'src/shell/Frame.tsx',
  'src/shell/SearchButton.tsx',
  'src/shell/shortcuts.ts',
  'src/ui/Flag.tsx',
  'src/ui/Page.tsx',
  'src/ui/Rows.tsx',
  'src/ui/Stat.tsx',
  'src/ui/State.tsx',
  'src/ui/Time.tsx',
  'src/api/client.ts',
  'src/api/link.ts',
  'src/shell/queryDefaults.ts',
  '@mantine/core/esm/components/Anchor/Anchor.mjs',
  '@mantine/core/esm/components/Badge/Badge.mjs',
  '@mantine/core/esm/components/FocusTrap/FocusTrap.mjs',
  '@mantine/core/esm/components/Group/Group.mjs',
  '@mantine/core/esm/components/Input/Input.mjs',
  '@mantine/core/esm/components/Overlay/Overlay.mjs',
  '@mantine/core/esm/components/Stack/Stack.mjs',
  '@mantine/hooks/esm/use-focus-return/use-focus-return.mjs',
  '@mantine/hooks/esm/use-focus-trap/use-focus-trap.mjs',
  '@mantine/hooks/esm/use-uncontrolled/use-uncontrolled.mjs',
  '@tabler/icons-react/dist/esm/icons/IconActivity.mjs',
  '@tabler/icons-react/dist/esm/icons/IconKey.mjs',
  '@tabler/icons-react/dist/esm/icons/IconUsers.mjs',
  '@tanstack/query-core/build/modern/queryClient.js',
  '@tanstack/react-query/build/modern/queryOptions.js',
  '@tanstack/react-query/build/modern/useQuery.js',
  '@tanstack/react-router/dist/esm/link.js',
  '@tanstack/react-router/dist/esm/RouterProvider.js',
  '@tanstack/react-router/dist/esm/router.js',
  '@tanstack/react-router/dist/esm/useNavigate.js',
  '@tanstack/react-router/dist/esm/useParams.js',
  '@tanstack/react-router/dist/esm/useSearch.js',
  'vite/preload-helper.js',
]
/** Modules, such as forms, that the first page of operators needs and that of tenants does not. */
export const FORMS = [
  'src/shell/Card.tsx',
  'src/lib/prometheus.ts',
  'src/ui/Confirm.tsx',
  'src/ui/PasswordInput.tsx',
  '@mantine/core/esm/components/Progress/Progress.mjs',
  '@tabler/icons-react/dist/esm/icons/IconLogout.mjs',
  '@tanstack/react-query/build/modern/useMutation.js',
]
