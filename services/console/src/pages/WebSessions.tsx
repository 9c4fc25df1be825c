import { Badge, Button } from '@mantine/core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { api, body, everything, type Schemas } from '../api/client'
import { browserName } from '../lib/browsers'
import { done, failed } from '../ui/notify'
import { Panel } from '../ui/Page'
import { type Column, Rows } from '../ui/Rows'
import { Loaded } from '../ui/State'
import { Time } from '../ui/Time'

type WebSession = Schemas['SignInSession']

const KEY = ['me', 'sessions']
const ROWS_MAX = 500

/** The browsers in which this person is signed in. */
export function WebSessions() {
  const client = useQueryClient()
  const query = useQuery({
    queryKey: KEY,
    queryFn: ({ signal }) =>
      everything<WebSession>(
        (cursor) => body(api.GET('/me/sessions', { params: { query: { cursor, limit: 200 } }, signal })),
        ROWS_MAX,
      ),
  })
  const end = (act: Promise<unknown>, said: string) =>
    void act
      .then(() => done(said))
      .catch(failed)
      .finally(() => client.invalidateQueries({ queryKey: KEY }))
  const endOne = (session: string) =>
    end(
      body(api.DELETE('/me/sessions/{session}', { params: { path: { session } } })),
      'That browser is signed out.',
    )
  const endOthers = () => end(body(api.DELETE('/me/sessions')), 'All other browsers are signed out.')

  const columns: Column<WebSession>[] = [
    {
      key: 'browser',
      header: 'Browser',
      width: 'minmax(0, 1fr)',
      cell: ({ user_agent, is_current }) => (
        <span title={user_agent ?? undefined}>
          {browserName(user_agent ?? '')}
          {is_current && (
            <Badge ml={8} size="sm" variant="default" tt="none" fw={500}>
              this one
            </Badge>
          )}
        </span>
      ),
    },
    {
      key: 'address',
      header: 'Address',
      width: '120px',
      isExtra: true,
      cell: ({ address }) => address ?? '–',
    },
    {
      key: 'began',
      header: 'Began',
      width: '80px',
      cell: ({ created_at_ms }) => (created_at_ms ? <Time at={created_at_ms} /> : '–'),
    },
    {
      key: 'end',
      header: '',
      width: '88px',
      isNumber: true,
      cell: ({ id, is_current }) =>
        !is_current && (
          <Button size="xs" variant="subtle" color="gray" onClick={() => endOne(id)}>
            Sign out
          </Button>
        ),
    },
  ]
  return (
    <Panel
      isFlush
      title="Web sessions"
      lead="Browsers in which you are signed in."
      actions={
        (query.data?.items.length ?? 0) > 1 && (
          <Button size="xs" variant="default" onClick={endOthers}>
            Sign out everywhere else
          </Button>
        )
      }
    >
      <Loaded query={query} height={100}>
        {({ items }) => <Rows label="Web sessions" rows={items} columns={columns} idOf={({ id }) => id} />}
      </Loaded>
    </Panel>
  )
}
