import { Badge } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link, useLocation, useParams } from '@tanstack/react-router'
import { brokerQuery, useNamedBroker } from '../api/brokers'
import { meQuery } from '../api/session'
import { isLoopback } from '../lib/host'
import { PAGES } from './pages'
import classes from './shell.module.css'

export function Breadcrumb() {
  const { organisation } = useParams({ strict: false })
  const broker = useNamedBroker()
  const { pathname } = useLocation()
  return (
    <nav aria-label="Breadcrumb" className={classes.breadcrumb}>
      {broker ? (
        <OfBroker name={broker} />
      ) : organisation ? (
        <OfOrganisation id={organisation} />
      ) : pathname.startsWith('/org') ? (
        <Link to="/org">Organisation</Link>
      ) : pathname === '/me' ? (
        <Link to="/me">Account</Link>
      ) : (
        <>
          {/* Without `all`, the list of a single broker opens that broker. */}
          <Link to="/" search={{ all: true }}>
            Brokers
          </Link>
          {pathname === '/brokers/new' && (
            <>
              <span aria-hidden="true">/</span>
              <span aria-current="page">Create broker</span>
            </>
          )}
        </>
      )}
      {isLoopback(location.hostname) && (
        <Badge variant="default" size="sm" className={classes.badge} visibleFrom="sm">
          This machine
        </Badge>
      )}
    </nav>
  )
}

function OfOrganisation({ id }: { id: string }) {
  const { data: me } = useQuery(meQuery)
  const name = me?.organisations.find((one) => one.id === id)?.name
  return (
    <>
      <Link to="/org">Organisation</Link>
      {name && (
        <>
          <span aria-hidden="true">/</span>
          <span aria-current="page">{name}</span>
        </>
      )}
    </>
  )
}

function OfBroker({ name }: { name: string }) {
  const { data } = useQuery(brokerQuery(name))
  const { pathname, search } = useLocation()
  const { client } = useParams({ strict: false })
  // The first page is the overview, which has the path of the broker.
  const page = PAGES.slice(1).find(({ path }) => path === `/${pathname.split('/')[3]}`)
  const item = client ?? (page?.path === '/webhooks' ? search.webhook : undefined)
  return (
    <>
      <Link to="/b/$broker" params={{ broker: name }}>
        {data?.display_name ?? name}
      </Link>
      {page && (
        <>
          <span aria-hidden="true">/</span>
          {item ? (
            <Link to={`/b/$broker${page.path as '/clients' | '/webhooks'}`} params={{ broker: name }}>
              {page.label}
            </Link>
          ) : (
            <span aria-current="page">{page.label}</span>
          )}
        </>
      )}
      {item && (
        <>
          <span aria-hidden="true" className={classes.item}>
            /
          </span>
          <span aria-current="page" className={classes.item}>
            {item}
          </span>
        </>
      )}
    </>
  )
}
