import { Button, Text, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { type ErrorComponentProps, Link, Outlet, useRouter } from '@tanstack/react-router'
import { useSilentSince } from '../api/link'
import { Problem } from '../api/problem'
import { waysQuery } from '../api/session'
import { Page } from '../ui/Page'
import { Away, Empty, Failure, Loading } from '../ui/State'
import { OfflineBar } from './OfflineBar'
import classes from './shell.module.css'

const HEARTBEAT_MS = 10_000

export function Root() {
  // Pages that load nothing more, such as forms, learn from this request that the server is unreachable.
  useQuery({ ...waysQuery, staleTime: 0, refetchInterval: HEARTBEAT_MS, notifyOnChangeProps: [] })
  return <Outlet />
}

export function NotFound() {
  return (
    <Page title="Not found">
      <Empty
        title="There is nothing at this address"
        action={
          <Button component={Link} to="/" variant="default">
            Go to your brokers
          </Button>
        }
      >
        There is no broker, client or page of this name, or you may not see it.
      </Empty>
    </Page>
  )
}

/** Instead of a page whose broker still loads. useSilentSince is null while the server answers. */
export function Pending() {
  return useSilentSince() === null ? <Loading /> : <Away />
}

/** Until the server has said who is signed in, nothing is drawn, unless it does not answer. */
export function FirstPending() {
  if (useSilentSince() === null) return null
  return (
    <div className={classes.sheet}>
      <main className={classes.card}>
        <Title order={1}>The server does not answer</Title>
        <Text c="dimmed" size="sm" mt={4}>
          This page opens as soon as it answers again.
        </Text>
      </main>
      <OfflineBar />
    </div>
  )
}

/** A page that could not be shown. The navigation around it works on. */
export function RouteFailure({ error, reset }: ErrorComponentProps) {
  const router = useRouter()
  if (error instanceof Problem && error.status === 404) return <NotFound />
  const retry = () => {
    reset()
    void router.invalidate()
  }
  return (
    <Page title="This page failed">
      <Failure error={error} retry={retry} />
    </Page>
  )
}
