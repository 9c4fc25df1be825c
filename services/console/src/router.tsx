import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  redirect,
} from '@tanstack/react-router'
import { brokerQuery, brokersQuery } from './api/brokers'
import { meQuery } from './api/session'
import { queryClient } from './shell/queryClient'
import { FirstPending, NotFound, Pending, Root, RouteFailure } from './shell/Root'

const rootRoute = createRootRoute({ component: Root, notFoundComponent: NotFound })

/** The router reads a value such as 7 as a number. */
function text(value: unknown) {
  const said = typeof value === 'number' ? String(value) : value
  return typeof said === 'string' && said !== '' ? said : undefined
}

/** Search parameters that are text. Others are dropped. */
const texts =
  <K extends string>(...names: K[]) =>
  (search: Record<string, unknown>) =>
    Object.fromEntries(names.map((name) => [name, text(search[name])])) as { [name in K]?: string }

const signInRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/sign-in',
  validateSearch: texts('next'),
  component: lazyRouteComponent(() => import('./pages/SignIn'), 'SignIn'),
})

const signUpRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/sign-up',
  component: lazyRouteComponent(() => import('./pages/SignUp'), 'SignUp'),
})

const forgottenRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/forgot-password',
  component: lazyRouteComponent(() => import('./pages/ForgotPassword'), 'ForgotPassword'),
})

const resetRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/reset-password',
  component: lazyRouteComponent(() => import('./pages/ResetPassword'), 'ResetPassword'),
})

const confirmAddressRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/confirm-address',
  component: lazyRouteComponent(() => import('./pages/ConfirmAddress'), 'ConfirmAddress'),
})

const confirmSignUpRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/confirm',
  component: lazyRouteComponent(() => import('./pages/ConfirmSignUp'), 'ConfirmSignUp'),
})

const signedInRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: 'signed-in',
  beforeLoad: async ({ location }) => {
    const me = await queryClient.ensureQueryData(meQuery)
    if (!me) throw redirect({ to: '/sign-in', search: location.href === '/' ? {} : { next: location.href } })
  },
  // Until the frame is there, a skeleton would be a flash of something else.
  pendingComponent: FirstPending,
  component: lazyRouteComponent(() => import('./shell/Shell'), 'Shell'),
})

const homeRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: '/',
  validateSearch: (search): { all?: boolean } => (search.all ? { all: true } : {}),
  beforeLoad: async ({ search }) => {
    if (search.all) return
    const brokers = await queryClient.ensureQueryData(brokersQuery)
    const [only] = brokers
    if (only && brokers.length === 1) {
      // The list has the whole broker, so that its page need not wait for the same answer.
      queryClient.setQueryData(brokerQuery(only.name).queryKey, (known) => known ?? only)
      throw redirect({ to: '/b/$broker', params: { broker: only.name }, replace: true })
    }
  },
  component: lazyRouteComponent(() => import('./pages/Brokers'), 'Brokers'),
})

const newBrokerRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: '/brokers/new',
  component: lazyRouteComponent(() => import('./pages/NewBroker'), 'NewBroker'),
})

const brokerRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: '/b/$broker',
  loader: ({ params }) => queryClient.ensureQueryData(brokerQuery(params.broker)),
  component: lazyRouteComponent(() => import('./pages/broker/BrokerFrame'), 'BrokerFrame'),
})

const under = { getParentRoute: () => brokerRoute }

const overviewRoute = createRoute({
  ...under,
  path: '/',
  validateSearch: texts('range'),
  component: lazyRouteComponent(() => import('./pages/broker/Overview'), 'Overview'),
})
const connectRoute = createRoute({
  ...under,
  path: '/connect',
  validateSearch: texts('client', 'user', 'snippet', 'host'),
  component: lazyRouteComponent(() => import('./pages/broker/Connect'), 'Connect'),
})
const liveRoute = createRoute({
  ...under,
  path: '/live',
  validateSearch: texts('filters', 'find', 'qos'),
  component: lazyRouteComponent(() => import('./pages/broker/Live'), 'Live'),
})
const clientsRoute = createRoute({
  ...under,
  path: '/clients',
  validateSearch: texts('search'),
  component: lazyRouteComponent(() => import('./pages/broker/Clients'), 'Clients'),
})
const clientRoute = createRoute({
  ...under,
  path: '/clients/$client',
  validateSearch: texts('tab', 'packet', 'topic', 'packets'),
  component: lazyRouteComponent(() => import('./pages/broker/Client'), 'Client'),
})
const topicsRoute = createRoute({
  ...under,
  path: '/topics',
  validateSearch: texts('topic', 'filter'),
  component: lazyRouteComponent(() => import('./pages/broker/Topics'), 'Topics'),
})
const sessionsRoute = createRoute({
  ...under,
  path: '/sessions',
  validateSearch: texts('session', 'search'),
  component: lazyRouteComponent(() => import('./pages/broker/Sessions'), 'Sessions'),
})
const streamsRoute = createRoute({
  ...under,
  path: '/streams',
  validateSearch: texts('stream', 'search'),
  component: lazyRouteComponent(() => import('./pages/broker/Streams'), 'Streams'),
})
const accessRoute = createRoute({
  ...under,
  path: '/access',
  validateSearch: texts('tab', 'edit', 'batch', 'claim', 'client', 'user', 'action', 'topic'),
  component: lazyRouteComponent(() => import('./pages/broker/Access'), 'Access'),
})
const webhooksRoute = createRoute({
  ...under,
  path: '/webhooks',
  validateSearch: texts('webhook', 'edit', 'delivery', 'letter'),
  component: lazyRouteComponent(() => import('./pages/broker/Webhooks'), 'Webhooks'),
})
const usageRoute = createRoute({
  ...under,
  path: '/usage',
  validateSearch: texts('range'),
  component: lazyRouteComponent(() => import('./pages/broker/Usage'), 'Usage'),
})
const messagesRoute = createRoute({
  ...under,
  path: '/messages',
  validateSearch: texts('topic', 'at', 'time'),
  component: lazyRouteComponent(() => import('./pages/broker/Messages'), 'Messages'),
})
const incidentsRoute = createRoute({
  ...under,
  path: '/incidents',
  validateSearch: texts('kind', 'client'),
  component: lazyRouteComponent(() => import('./pages/broker/Incidents'), 'Incidents'),
})
const settingsRoute = createRoute({
  ...under,
  path: '/settings',
  component: lazyRouteComponent(() => import('./pages/broker/Settings'), 'Settings'),
})

const orgHomeRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: '/org',
  beforeLoad: async () => {
    const me = await queryClient.ensureQueryData(meQuery)
    const [first] = me?.organisations ?? []
    if (first) throw redirect({ to: '/org/$organisation', params: { organisation: first.id }, replace: true })
  },
  component: lazyRouteComponent(() => import('./pages/org/NewOrganisation'), 'NewOrganisation'),
})

const newOrgRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: '/org/new',
  component: lazyRouteComponent(() => import('./pages/org/NewOrganisation'), 'NewOrganisation'),
})

const orgRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: '/org/$organisation',
  validateSearch: texts('tab', 'range', 'actor', 'action', 'from', 'to', 'edit', 'entry'),
  component: lazyRouteComponent(() => import('./pages/org/Organisation'), 'Organisation'),
})

const meRoute = createRoute({
  getParentRoute: () => signedInRoute,
  path: '/me',
  // The server sends a browser back from the provider with identity=pending.
  validateSearch: texts('identity', 'entry'),
  component: lazyRouteComponent(() => import('./pages/Account'), 'Account'),
})

const routeTree = rootRoute.addChildren([
  signInRoute,
  signUpRoute,
  forgottenRoute,
  resetRoute,
  confirmAddressRoute,
  confirmSignUpRoute,
  signedInRoute.addChildren([
    homeRoute,
    newBrokerRoute,
    brokerRoute.addChildren([
      overviewRoute,
      connectRoute,
      liveRoute,
      clientsRoute,
      clientRoute,
      topicsRoute,
      sessionsRoute,
      streamsRoute,
      messagesRoute,
      accessRoute,
      webhooksRoute,
      usageRoute,
      incidentsRoute,
      settingsRoute,
    ]),
    orgHomeRoute,
    newOrgRoute,
    orgRoute,
    meRoute,
  ]),
])

export const router = createRouter({
  routeTree,
  defaultPreload: 'intent',
  defaultPendingComponent: Pending,
  defaultPendingMs: 300,
  defaultErrorComponent: RouteFailure,
  scrollRestoration: true,
})

/** Loads the scripts of the pages at an address while the browser asks who is signed in, and not after that. */
export function loadPagesOf(pathname: string) {
  for (const { routeId } of router.matchRoutes(pathname, {})) {
    // The page is asked for again when it is opened.
    Promise.resolve(router.loadRouteChunk(router.routesById[routeId])).catch(() => {})
  }
}

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router
  }
}
