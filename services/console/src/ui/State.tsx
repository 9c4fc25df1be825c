import { Alert, Anchor, Button, Skeleton, Text, Title } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import type { UseInfiniteQueryResult, UseQueryResult } from '@tanstack/react-query'
import { type ReactNode, useContext, useEffect, useState } from 'react'
import { Problem } from '../api/problem'
import { count, duration } from '../lib/format'
import { Code } from './Code'
import { HeadingLevel } from './Page'
import classes from './ui.module.css'

const SKELETON_AFTER_MS = 300
/** Height of something that loads, where a page does not know it. */
const LOADING_PX = 160

/** True once `ms` have passed since this was mounted. */
function useLater(ms: number) {
  const [isLater, setLater] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setLater(true), ms)
    return () => clearTimeout(timer)
  }, [ms])
  return isLater
}

/** Fills the room of something that loads. It appears late, so that nothing blinks when an answer comes soon. */
export function Loading({ height = LOADING_PX }: { height?: number }) {
  const isShown = useLater(SKELETON_AFTER_MS)
  return (
    <div style={{ height }} aria-busy="true">
      {isShown && <Skeleton height={height} radius={8} />}
    </div>
  )
}

interface EmptyProps {
  icon?: ReactNode
  title: string
  children?: ReactNode
  /** The one next step. */
  action?: ReactNode
  command?: string
}

/** There is nothing yet: the thing, why there is none, and the next step. */
export function Empty({ icon, title, children, action, command }: EmptyProps) {
  return (
    <div className={classes.empty} data-empty>
      {icon}
      <Title order={useContext(HeadingLevel)} size="h3">
        {title}
      </Title>
      {children && <p>{children}</p>}
      {command && <Code text={command} label="command" />}
      {action}
    </div>
  )
}

interface FailureProps {
  error: unknown
  retry?: () => void
  /** The request was about the person's own account, where no role helps. */
  isOwnAccount?: boolean
}

/** An error: its cause, the parts that still work, and the next step. */
export function Failure({ error, retry, isOwnAccount }: FailureProps) {
  const problem = error instanceof Problem ? error : null
  const said = problem?.message ?? 'This part of the page failed. The rest of the page works.'
  return (
    <Alert color="red" variant="light" icon={<IconAlertTriangle size={18} />} role="alert" title={said}>
      {problem?.isOffline && (
        <Text size="sm">Your input is still here. Try again when the server answers.</Text>
      )}
      {problem?.status === 429 && (
        <Text size="sm">
          Wait {problem.retryAfterS ? duration(problem.retryAfterS) : 'a few seconds'}, then try again.
        </Text>
      )}
      {problem?.status === 403 && !isOwnAccount && (
        <Text size="sm">Ask an owner of the organisation for a role that allows this.</Text>
      )}
      {problem?.requestId && (
        <Text size="xs" c="dimmed">
          Request <span className="mono">{problem.requestId}</span>
        </Text>
      )}
      {retry && (
        <Button size="xs" variant="default" mt="xs" onClick={retry}>
          Try again
        </Button>
      )}
    </Alert>
  )
}

/** Nothing was loaded before the server became unreachable. The query retries by itself. */
export function Away() {
  return (
    <Empty title="The server does not answer">
      This part of the page loads when the server answers again.
    </Empty>
  )
}

/** The server answers one list at once for a broker. The query asks again by itself. */
function Busy() {
  return (
    <Empty title="Please wait">
      The server is busy with other requests like this one. This part of the page comes in a few seconds.
    </Empty>
  )
}

interface LoadedProps<T> {
  query: UseQueryResult<T>
  height?: number
  children: (data: T) => ReactNode
}

/** The result of a query. A page with data keeps the data while the server is unreachable. */
export function Loaded<T>({ query, height = LOADING_PX, children }: LoadedProps<T>) {
  if (query.data !== undefined) return children(query.data)
  const { failureReason: reason, isPending, isError, error } = query
  const isOffline = reason instanceof Problem && reason.isOffline
  const isBusy = isPending && reason instanceof Problem && reason.isBusy
  if (!isOffline && !isBusy && !isError) return <Loading height={height} />
  return (
    // The content below it does not jump.
    <div style={{ minHeight: height }}>
      {isOffline ? (
        <Away />
      ) : isBusy ? (
        <Busy />
      ) : (
        <Failure error={error} retry={() => void query.refetch()} />
      )}
    </div>
  )
}

interface RestFailedProps {
  query: UseInfiniteQueryResult
  /** Rows that were loaded. */
  shown: number
  /** In the plural, such as "clients". */
  noun: string
}

/** Below a list whose next page failed: the list keeps the rows that it has. */
export const RestFailed = ({ query, shown, noun }: RestFailedProps) => (
  <div className={classes.inset}>
    <Text size="sm" mb="xs">
      The list has the first {count(shown)} {noun}. The others could not be loaded:
    </Text>
    <Failure error={query.error} retry={() => void query.fetchNextPage()} />
  </div>
)

/** Says that the API of this server does not have something yet. */
export function NotHere({ what, until }: { what: string; until?: ReactNode }) {
  return (
    <Empty title={`This server does not show ${what}`}>
      Its API does not offer it yet.{' '}
      {until ?? <Anchor href="/api/v1/openapi.json">See what it offers.</Anchor>}
    </Empty>
  )
}
