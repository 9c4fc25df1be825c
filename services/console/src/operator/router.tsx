import { Button } from '@mantine/core'
import { createRootRoute, createRoute, createRouter, Link, lazyRouteComponent } from '@tanstack/react-router'
import { Page } from '../ui/Page'
import { Empty, Failure, Loading } from '../ui/State'
import { OperatorPages } from './OperatorPages'

const text = (value: unknown) => (typeof value === 'string' && value !== '' ? value : undefined)

// `Link` has the types of the tenants' routes (../router), so links to these are cast.
const rootRoute = createRootRoute({
  component: OperatorPages,
  notFoundComponent: () => (
    <Page title="Not found">
      <Empty
        title="There is nothing at this address"
        action={
          <Button component={Link} to="/" variant="default">
            Go to the overview
          </Button>
        }
      >
        The operator pages are Overview, Tenants, Audit log and Accounts. The console of tenants is on the
        HTTP port.
      </Empty>
    </Page>
  ),
})

const overviewRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/',
  component: lazyRouteComponent(() => import('./Overview'), 'Overview'),
})

const tenantsRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/tenants',
  validateSearch: (search) => ({
    tenant: text(search.tenant),
    search: text(search.search),
    state: text(search.state),
  }),
  component: lazyRouteComponent(() => import('./Tenants'), 'Tenants'),
})

const auditRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/audit',
  validateSearch: (search) => ({
    tenant: text(search.tenant),
    actor: text(search.actor),
    action: text(search.action),
    from: text(search.from),
    to: text(search.to),
    entry: text(search.entry),
  }),
  component: lazyRouteComponent(() => import('./Audit'), 'Audit'),
})

const accountsRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/accounts',
  component: lazyRouteComponent(() => import('./Accounts'), 'Accounts'),
})

export const router = createRouter({
  routeTree: rootRoute.addChildren([overviewRoute, tenantsRoute, auditRoute, accountsRoute]),
  defaultPreload: 'intent',
  defaultPendingComponent: Loading,
  defaultPendingMs: 300,
  defaultErrorComponent: ({ error, reset }) => (
    <Page title="This page failed">
      <Failure error={error} retry={reset} />
    </Page>
  ),
  scrollRestoration: true,
})
