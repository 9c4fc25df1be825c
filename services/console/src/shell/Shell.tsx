import { ActionIcon, Menu } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { IconUser } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useLocation, useNavigate, useRouter } from '@tanstack/react-router'
import { lazy, Suspense, useEffect } from 'react'
import { useNamedBroker } from '../api/brokers'
import { meQuery, signOut } from '../api/session'
import { useSessionOver } from '../api/sessionOver'
import { failed } from '../ui/notify'
import { Breadcrumb } from './Breadcrumb'
import { Frame } from './Frame'
import { Nav } from './Nav'
import { PAGES } from './pages'
import { preloadPages } from './preload'
import { SearchButton } from './SearchButton'
import { useShortcuts } from './shortcuts'

const SessionOver = lazy(() => import('./SessionOver').then(({ SessionOver }) => ({ default: SessionOver })))
const Palette = lazy(() => import('./Palette').then(({ Palette }) => ({ default: Palette })))

export function Shell() {
  const { data: me } = useQuery(meQuery)
  const [isPaletteOpen, palette] = useDisclosure(false)
  const { href } = useLocation()
  const isOver = useSessionOver()
  const navigate = useNavigate()
  useShortcuts(palette.open, useBrokerPages())
  const router = useRouter()
  useEffect(() => preloadPages(router), [router])

  const isSignedOut = me === null
  // biome-ignore lint/correctness/useExhaustiveDependencies: the address changes by this, and must not do it again
  useEffect(() => {
    // The person has signed out. After the sign-in the same page opens again.
    if (isSignedOut) void navigate({ to: '/sign-in', search: { next: href }, replace: true })
  }, [isSignedOut])

  if (!me) return null
  return (
    <>
      <Frame
        place={<Breadcrumb />}
        before={<SearchButton open={palette.open} />}
        after={<UserMenu name={me.user.name} email={me.user.email ?? 'Owner of this machine'} />}
        nav={<Nav />}
      />
      {isPaletteOpen && (
        <Suspense>
          <Palette close={palette.close} />
        </Suspense>
      )}
      {isOver && (
        <Suspense>
          <SessionOver me={me} />
        </Suspense>
      )}
    </>
  )
}

/** The keys of the pages of the broker that is shown. */
function useBrokerPages() {
  const navigate = useNavigate()
  const broker = useNamedBroker()
  if (!broker) return []
  return PAGES.map(({ key, path }) => ({
    key,
    open: () => void navigate({ to: path === '/' ? '/b/$broker' : `/b/$broker${path}`, params: { broker } }),
  }))
}

function UserMenu({ name, email }: { name: string; email: string }) {
  const client = useQueryClient()
  return (
    <Menu position="bottom-end" width={220}>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" size="lg" aria-label={`Account of ${name}`}>
          <IconUser size={18} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>{email}</Menu.Label>
        <Menu.Item component={Link} to="/me">
          Account
        </Menu.Item>
        <Menu.Item component={Link} to="/org">
          Organisation
        </Menu.Item>
        <Menu.Divider />
        <Menu.Item onClick={() => signOut(client).catch(failed)}>Sign out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  )
}
