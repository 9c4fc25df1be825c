import { Badge, Button, Group, Text } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconInbox } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useBroker } from '../../api/brokers'
import { clearSession, type Session, sessionQuery, sessionsQuery } from '../../api/live'
import { isMissing } from '../../api/problem'
import { bytes, count, legible, plural } from '../../lib/format'
import { storedSession, targetOf } from '../../lib/snippets'
import { ClientLink } from '../../ui/ClientLink'
import { Confirm } from '../../ui/Confirm'
import { Drawer } from '../../ui/Drawer'
import { done } from '../../ui/notify'
import { Page, Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Search } from '../../ui/Search'
import { Stat, Stats } from '../../ui/Stat'
import { Empty, Loaded } from '../../ui/State'
import { Term } from '../../ui/Term'
import { Time } from '../../ui/Time'
import ui from '../../ui/ui.module.css'
import { SessionDetails } from './SessionDetails'

const columns: Column<Session>[] = [
  {
    key: 'id',
    header: 'Client id',
    width: 'minmax(0, 2fr)',
    narrowWidth: 'minmax(0, 1fr)',
    cell: ({ client_id }) => (
      <span className="mono" title={legible(client_id)}>
        {legible(client_id)}
      </span>
    ),
  },
  {
    key: 'state',
    header: 'State',
    width: 'minmax(128px, 1fr)',
    narrowWidth: '128px',
    cell: ({ state, offline_since_ms }) => (
      <Badge variant="default" tt="none" fw={500}>
        {state} {offline_since_ms && state === 'offline' && <Time at={offline_since_ms} />}
      </Badge>
    ),
  },
  {
    key: 'waiting',
    header: 'Waiting',
    width: '88px',
    narrowWidth: '60px',
    isNumber: true,
    cell: ({ waiting_messages, waiting_is_more }) =>
      `${count(waiting_messages)}${waiting_is_more ? '+' : ''}`,
  },
  {
    key: 'bytes',
    header: 'Bytes',
    width: '96px',
    isNumber: true,
    isExtra: true,
    cell: ({ waiting_bytes, waiting_is_more }) => `${bytes(waiting_bytes)}${waiting_is_more ? '+' : ''}`,
  },
  {
    key: 'oldest',
    header: 'Oldest',
    width: '88px',
    isNumber: true,
    isExtra: true,
    cell: ({ oldest_waiting_at_ms }) => (oldest_waiting_at_ms ? <Time at={oldest_waiting_at_ms} /> : '–'),
  },
  {
    key: 'ends',
    header: 'Expires',
    width: '88px',
    isNumber: true,
    isExtra: true,
    cell: ({ expires_at_ms }) => (expires_at_ms ? <Time at={expires_at_ms} /> : '–'),
  },
]

/** Stored sessions, and what waits for them. */
export function Sessions() {
  const { path, endpoint } = useBroker()
  const { session, search = '' } = useSearch({ from: '/signed-in/b/$broker/sessions' })
  const navigate = useNavigate({ from: '/b/$broker/sessions' })
  const [wanted] = useDebouncedValue(search, 150)
  const query = useQuery(sessionsQuery(path))
  // The server searches where this page does not have all sessions.
  const isRemote = wanted !== '' && query.data?.isCut === true
  const remote = useQuery({ ...sessionsQuery(path, wanted), enabled: isRemote })
  const change = (to: { session?: string; search?: string }) =>
    void navigate({ search: (before) => ({ ...before, ...to }), replace: true })
  return (
    <Page
      title="Sessions"
      lead={
        <>
          A stored <Term of="session">session</Term> keeps subscriptions and messages while its client is
          away.
        </>
      }
    >
      <Loaded query={query} height={400}>
        {({ items, isCut }) => {
          const found = isRemote
            ? (remote.data?.items ?? [])
            : items.filter(({ client_id }) => client_id.startsWith(search))
          return items.length === 0 ? (
            <Panel>
              <Empty
                icon={<IconInbox size={28} stroke={1.4} />}
                title="No stored session"
                command={endpoint ? storedSession(targetOf(endpoint), 'hello/#') : undefined}
              >
                The server stores the session of a client that connects with a session expiry, or without
                clean session before MQTT 5.0. This command makes one.
              </Empty>
            </Panel>
          ) : (
            <>
              <Totals sessions={items} isCut={isCut} />
              <Panel isFlush>
                <Group className={ui.tableBar} justify="space-between">
                  <Search
                    label="Search sessions"
                    placeholder="Client id begins with"
                    value={search}
                    onChange={(search) => change({ search: search || undefined })}
                  />
                </Group>
                <Rows
                  label="Stored sessions"
                  rows={found}
                  columns={columns}
                  idOf={({ client_id }) => client_id}
                  onOpen={({ client_id }) => change({ session: client_id })}
                  empty={
                    isRemote && !remote.data ? (
                      <Loaded query={remote}>{() => null}</Loaded>
                    ) : (
                      <Empty
                        title={`No session begins with ${search}`}
                        action={
                          <Button variant="default" onClick={() => change({ search: undefined })}>
                            Show all sessions
                          </Button>
                        }
                      >
                        A client whose session has ended has none until it connects again.
                      </Empty>
                    )
                  }
                />
              </Panel>
            </>
          )
        }}
      </Loaded>
      <Drawer
        opened={session !== undefined}
        onClose={() => change({ session: undefined })}
        title={session && `Session ${session}`}
        size={560}
      >
        {session !== undefined && <OneSession id={session} onGone={() => change({ session: undefined })} />}
      </Drawer>
    </Page>
  )
}

function Totals({ sessions, isCut }: { sessions: Session[]; isCut: boolean }) {
  const waiting = sessions.reduce((sum, one) => sum + one.waiting_messages, 0)
  const isMore = isCut || sessions.some(({ waiting_is_more }) => waiting_is_more)
  const size = sessions.reduce((sum, one) => sum + one.waiting_bytes, 0)
  const oldest = sessions.flatMap(({ oldest_waiting_at_ms }) => oldest_waiting_at_ms ?? [])
  const offline = sessions.filter(({ state }) => state === 'offline').length
  return (
    <Stats>
      <Stat
        label="Sessions"
        value={`${count(sessions.length)}${isCut ? '+' : ''}`}
        note={`${count(offline)} offline`}
      />
      <Stat label="Waiting messages" term="waiting" value={`${count(waiting)}${isMore ? '+' : ''}`} />
      <Stat label="Waiting bytes" value={`${bytes(size)}${isMore ? '+' : ''}`} />
      <Stat label="Oldest message" value={oldest.length > 0 ? <Time at={Math.min(...oldest)} /> : '–'} />
    </Stats>
  )
}

function OneSession({ id, onGone }: { id: string; onGone: () => void }) {
  const { path, can } = useBroker()
  const client = useQueryClient()
  const query = useQuery(sessionQuery(path, id))
  if (isMissing(query.error)) {
    return (
      <Empty
        title="This session is not stored"
        action={
          <Text size="sm">
            See <ClientLink broker={path.broker} id={id} /> as a client
          </Text>
        }
      >
        It has ended, or the client connects without a session expiry.
      </Empty>
    )
  }
  return (
    <Loaded query={query}>
      {(session) => (
        <>
          <SessionDetails session={session} />
          <Text size="sm" mt="md">
            <ClientLink broker={path.broker} id={id} /> as a client: its connection, its refusals, its packets
          </Text>
          {can('clients:write') && (
            <Confirm
              verb="Clear session"
              title={`Clear the session of ${id}?`}
              name={session.waiting_messages > 0 ? id : undefined}
              loses={
                <Text size="sm">
                  {plural(session.waiting_messages, 'waiting message')}
                  {session.waiting_is_more && ' or more'} and {plural(session.subscriptions, 'subscription')}{' '}
                  are lost. The connection is closed.
                </Text>
              }
              act={() => clearSession(path, id)}
              onDone={() => {
                done(`The session of ${id} has ended.`)
                // All queries of the broker: client, streams and counts show the session too.
                void client.invalidateQueries({ queryKey: ['b', path.broker] })
                onGone()
              }}
            >
              {(open) => (
                <Button color="red" variant="light" onClick={open} mt="lg">
                  Clear session
                </Button>
              )}
            </Confirm>
          )}
        </>
      )}
    </Loaded>
  )
}
