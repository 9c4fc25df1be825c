import { AppShell, Burger, Group } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { Outlet, useLocation } from '@tanstack/react-router'
import { type ReactNode, useEffect } from 'react'
import { DensityButton } from './DensityButton'
import { OfflineBar } from './OfflineBar'
import { SchemeButton } from './SchemeButton'
import classes from './shell.module.css'

interface FrameProps {
  /** Names of the organisation and broker, at the left of the header. */
  place: ReactNode
  /** Further buttons of the header, left and right of the buttons for density and colour scheme. */
  before?: ReactNode
  after?: ReactNode
  nav: ReactNode
}

/** Header, navigation and offline bar around each page, of tenants and of operators. */
export function Frame({ place, before, after, nav }: FrameProps) {
  const [isNavOpen, { toggle, close }] = useDisclosure(false)
  const { pathname } = useLocation()
  // biome-ignore lint/correctness/useExhaustiveDependencies: the menu closes when the address changes
  useEffect(close, [pathname])
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
        <Burger
          opened={isNavOpen}
          onClick={toggle}
          hiddenFrom="sm"
          size="sm"
          aria-label="Navigation"
          aria-expanded={isNavOpen}
        />
        {place}
        <Group gap={6} wrap="nowrap" ml="auto">
          {before}
          <DensityButton />
          <SchemeButton />
          {after}
        </Group>
      </AppShell.Header>
      <AppShell.Navbar className={classes.navbar} aria-label="Pages">
        {nav}
      </AppShell.Navbar>
      <AppShell.Main id="content" tabIndex={-1} className={classes.main}>
        <div className={classes.content}>
          <Outlet />
        </div>
        <OfflineBar />
      </AppShell.Main>
    </AppShell>
  )
}
