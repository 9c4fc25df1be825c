import { Badge, UnstyledButton } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { IconLogout } from '@tabler/icons-react'
import { useQuery } from '@tanstack/react-query'
import { Link, useLocation, useNavigate } from '@tanstack/react-router'
import { lazy, Suspense } from 'react'
import { Problem } from '../api/problem'
import mark from '../favicon.svg'
import { Card } from '../shell/Card'
import { Frame } from '../shell/Frame'
import { SearchButton } from '../shell/SearchButton'
import classes from '../shell/shell.module.css'
import { useShortcuts } from '../shell/shortcuts'
import { Flag } from '../ui/Flag'
import { hasToken } from './client'
import { PAGES } from './pages'
import { forgetToken, podQuery } from './queries'
import { Token } from './Token'

const Palette = lazy(() => import('./Palette').then(({ Palette }) => ({ default: Palette })))

/** The pages for operators: the API decides whether this browser may see them. */
export function OperatorPages() {
  const { error, data: pod, failureReason } = useQuery(podQuery)
  const status = error instanceof Problem ? error.status : null
  if (status === 401) return <Token />
  if (status === 403) return <NotFromHere />
  // Until the API has answered, a frame could be a flash before the page that asks for the token.
  if (!pod && !failureReason) return null
  return <Signed name={pod?.name} />
}

function NotFromHere() {
  return (
    <Card title="Only on this machine">
      <p>
        This server has no operator token, so it answers operators on its own machine only. Open{' '}
        <code>http://127.0.0.1:{location.port}/</code> there, or start the server with{' '}
        <Flag>--operator-token-file</Flag>.
      </p>
    </Card>
  )
}

function Signed({ name }: { name: string | undefined }) {
  const { pathname } = useLocation()
  const navigate = useNavigate()
  const [isPaletteOpen, palette] = useDisclosure(false)
  useShortcuts(
    palette.open,
    PAGES.map(({ key, to }) => ({ key, open: () => void navigate({ to }) })),
  )
  const page = PAGES.slice(1).find(({ to }) => to === pathname)
  return (
    <>
      <Frame
        nav={<Nav />}
        before={<SearchButton open={palette.open} />}
        place={
          <nav aria-label="Breadcrumb" className={classes.breadcrumb}>
            <Link to="/">Operators</Link>
            {page && (
              <>
                <span aria-hidden="true">/</span>
                <span aria-current="page">{page.label}</span>
              </>
            )}
            {name && name !== 'self' && (
              <Badge variant="default" className={classes.badge}>
                {name}
              </Badge>
            )}
          </nav>
        }
      />
      {isPaletteOpen && (
        <Suspense>
          <Palette close={palette.close} />
        </Suspense>
      )}
    </>
  )
}

function Nav() {
  return (
    <>
      <div className={classes.switcher}>
        <img src={mark} width={24} height={24} alt="" />
        <span className={classes.switcherName}>Millrace</span>
      </div>
      <div className={classes.links}>
        <div className={classes.group}>
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
        </div>
      </div>
      {hasToken() && (
        <div className={classes.foot}>
          <UnstyledButton className={classes.link} onClick={forgetToken}>
            <IconLogout size={17} stroke={1.6} /> Forget the token
          </UnstyledButton>
        </div>
      )}
    </>
  )
}
