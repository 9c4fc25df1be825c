import { AppShell, Badge, Burger, Group, ScrollArea, UnstyledButton } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { IconActivity, IconKey, IconLogout, IconUsers } from '@tabler/icons-react'
import { useQuery } from '@tanstack/react-query'
import { Link, Outlet, useLocation } from '@tanstack/react-router'
import { useEffect } from 'react'
import { Problem } from '../api/problem'
import { Card } from '../shell/Card'
import { OfflineBar } from '../shell/OfflineBar'
import { SchemeButton } from '../shell/SchemeButton'
import classes from '../shell/shell.module.css'
import { hasToken, keepToken } from './client'
import { podQuery, queryClient } from './queries'
import { Token } from './Token'

const PAGES: { to: string; label: string; icon: typeof IconActivity }[] = [
  { to: '/', label: 'Overview', icon: IconActivity },
  { to: '/tenants', label: 'Tenants', icon: IconUsers },
  { to: '/accounts', label: 'Accounts', icon: IconKey },
]

/** The pages for operators: the API decides whether this browser may see them. */
export function Frame() {
  const { error, data: pod, failureReason } = useQuery(podQuery)
  const status = error instanceof Problem ? error.status : null
  if (status === 401) return <Token />
  if (status === 403) return <NotFromHere />
  // Until the API has said which of them it is, a frame would be a flash of something else.
  if (!pod && !failureReason) return null
  return <Signed name={pod?.name} />
}

function NotFromHere() {
  return (
    <Card title="Only on this machine">
      <p>
        This server has no operator token, so it answers operators on its own machine only. Open{' '}
        <code>http://127.0.0.1:{location.port}/</code> there, or start the server with{' '}
        <code>--operator-token-file</code>.
      </p>
    </Card>
  )
}

function Signed({ name }: { name: string | undefined }) {
  const [isNavOpen, { toggle, close }] = useDisclosure(false)
  const { pathname } = useLocation()
  // biome-ignore lint/correctness/useExhaustiveDependencies: the menu closes when the address changes
  useEffect(close, [pathname])
  const forget = () => {
    keepToken(null)
    // Cached answers were read with the token.
    queryClient.clear()
    location.assign('/')
  }
  return (
    <AppShell
      header={{ height: 56 }}
      navbar={{ width: 220, breakpoint: 'sm', collapsed: { mobile: !isNavOpen } }}
      padding={0}
    >
      <a href="#content" className={classes.skip}>
        Skip to content
      </a>
      <AppShell.Header className={classes.header}>
        <Burger opened={isNavOpen} onClick={toggle} hiddenFrom="sm" size="sm" aria-label="Navigation" />
        <Group gap={8} wrap="nowrap">
          <span>Operators</span>
          {name && name !== 'self' && (
            <Badge variant="default" className={classes.badge}>
              {name}
            </Badge>
          )}
        </Group>
        <Group gap={6} wrap="nowrap" ml="auto">
          <SchemeButton />
        </Group>
      </AppShell.Header>
      <AppShell.Navbar className={classes.navbar}>
        <div className={classes.switcher}>
          <img src="/favicon.svg" width={24} height={24} alt="" />
          <span className={classes.switcherName}>Millrace</span>
        </div>
        <ScrollArea className={classes.links} type="auto">
          <nav className={classes.group} aria-label="Pages">
            {PAGES.map(({ to, label, icon: Icon }) => (
              <Link
                key={to}
                to={to}
                className={classes.link}
                activeOptions={{ exact: true, includeSearch: false }}
                activeProps={{ 'data-active': true }}
              >
                <Icon size={17} stroke={1.6} /> {label}
              </Link>
            ))}
          </nav>
        </ScrollArea>
        {hasToken() && (
          <div className={classes.foot}>
            <UnstyledButton className={classes.link} onClick={forget}>
              <IconLogout size={17} stroke={1.6} /> Forget the token
            </UnstyledButton>
          </div>
        )}
      </AppShell.Navbar>
      <AppShell.Main id="content" tabIndex={-1} className={classes.main}>
        <OfflineBar />
        <Outlet />
      </AppShell.Main>
    </AppShell>
  )
}
