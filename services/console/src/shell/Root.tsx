import { Button } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { type ErrorComponentProps, Link, Outlet, useRouter } from '@tanstack/react-router'
import { Problem } from '../api/problem'
import { waysQuery } from '../api/session'
import { Page } from '../ui/Page'
import { Empty, Failure } from '../ui/State'

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
        A broker, client or page of this name is not here, or you may not see it.
      </Empty>
    </Page>
  )
}

/** A page that could not be shown. The navigation around it works on. */
export function RouteFailure({ error, reset }: ErrorComponentProps) {
  const router = useRouter()
  if (error instanceof Problem && error.status === 404) return <NotFound />
  const again = () => {
    reset()
    void router.invalidate()
  }
  return (
    <Page title="This page failed">
      <Failure error={error} again={again} />
    </Page>
  )
}
