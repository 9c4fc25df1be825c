import { Anchor, Button, Group, Table, Text } from '@mantine/core'
import { IconStack2 } from '@tabler/icons-react'
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useBroker } from '../../api/brokers'
import { isMissing } from '../../api/problem'
import { type StreamDetails, streamQuery, streamsQuery } from '../../api/stored'
import { bytes, count, legible, plural } from '../../lib/format'
import { storedSession, targetOf } from '../../lib/snippets'
import { storing } from '../../lib/storing'
import { receiversText, type Stream, streamsSorted, waitingIn, waitingSince } from '../../lib/streams'
import { Drawer } from '../../ui/Drawer'
import { Long } from '../../ui/Long'
import { Page, Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Search } from '../../ui/Search'
import { Facts, Stat, Stats } from '../../ui/Stat'
import { Empty, Loaded } from '../../ui/State'
import { Term } from '../../ui/Term'
import { Time } from '../../ui/Time'
import ui from '../../ui/ui.module.css'
import { StoredFor } from './messages/StoredFor'

const columns: Column<Stream>[] = [
  {
    key: 'filter',
    header: 'Topic filter',
    width: 'minmax(0, 2fr)',
    narrowWidth: 'minmax(0, 1fr)',
    cell: ({ filter }) => (
      <span className="mono" title={legible(filter)}>
        {legible(storing(filter).filter)}
      </span>
    ),
  },
  {
    key: 'for',
    header: 'Stored for',
    width: 'minmax(112px, 1fr)',
    isExtra: true,
    cell: receiversText,
  },
  {
    key: 'messages',
    header: 'Messages',
    width: '88px',
    narrowWidth: '76px',
    isNumber: true,
    cell: (stream) => {
      const { messages, isMore } = waitingIn(stream)
      return `${count(messages)}${isMore ? '+' : ''}`
    },
  },
  {
    key: 'bytes',
    header: 'Bytes',
    width: '96px',
    isNumber: true,
    isExtra: true,
    cell: ({ group, stored_bytes }) => bytes(group?.waiting_bytes ?? stored_bytes),
  },
  {
    key: 'since',
    header: 'Since',
    width: '96px',
    narrowWidth: '88px',
    isNumber: true,
    cell: (stream) => {
      const at = waitingSince(stream)
      return at ? <Time at={at} /> : '–'
    },
  },
  {
    key: 'trimmed',
    header: 'Removed before delivery',
    width: '120px',
    isNumber: true,
    isExtra: true,
    cell: ({ trimmed_messages }) => count(trimmed_messages),
  },
]

/** Stored messages by topic filter: how many wait, for whom, and since when. */
export function Streams() {
  const { path, endpoint } = useBroker()
  const { stream, search = '' } = useSearch({ from: '/signed-in/b/$broker/streams' })
  const navigate = useNavigate({ from: '/b/$broker/streams' })
  const query = useQuery(streamsQuery(path))
  const change = (to: { stream?: string; search?: string }) =>
    void navigate({ search: (before) => ({ ...before, ...to }), replace: true })
  return (
    <Page
      title="Streams"
      lead={
        <>
          A <Term of="stream">stream</Term> has the stored messages of one topic filter. They may stay for a
          while after all its sessions have acknowledged them.
        </>
      }
    >
      <Loaded query={query} height={400}>
        {({ items, isCut }) =>
          items.length === 0 ? (
            <Panel>
              <Empty
                icon={<IconStack2 size={28} stroke={1.4} />}
                title="No stream"
                command={endpoint ? storedSession(targetOf(endpoint), 'hello/#') : undefined}
              >
                The server stores messages for sessions with an expiry that subscribe with QoS 1 or 2. This
                command makes one.
              </Empty>
            </Panel>
          ) : (
            <>
              <Totals streams={items} isCut={isCut} />
              <Panel isFlush>
                <Group className={ui.tableBar}>
                  <Search
                    label="Search streams"
                    placeholder="Topic filter contains"
                    value={search}
                    onChange={(search) => change({ search: search || undefined })}
                  />
                </Group>
                <Rows
                  label="Streams"
                  rows={streamsSorted(items, search)}
                  columns={columns}
                  idOf={({ filter }) => filter}
                  onOpen={({ filter }) => change({ stream: filter })}
                  empty={
                    <Empty
                      title={`No filter contains ${search}`}
                      action={
                        <Button variant="default" onClick={() => change({ search: undefined })}>
                          Show all streams
                        </Button>
                      }
                    >
                      A stream ends with the last session that subscribes to its filter.
                    </Empty>
                  }
                />
              </Panel>
            </>
          )
        }
      </Loaded>
      <Drawer
        opened={stream !== undefined}
        onClose={() => change({ stream: undefined })}
        title={<Long text={stream ?? ''} what="filter" />}
        size={560}
      >
        {stream !== undefined && <OneStream filter={stream} />}
      </Drawer>
    </Page>
  )
}

function Totals({ streams, isCut }: { streams: Stream[]; isCut: boolean }) {
  const sum = (of: (stream: Stream) => number) => streams.reduce((all, one) => all + of(one), 0)
  const more = isCut ? '+' : ''
  const groups = streams.filter(({ group }) => group).length
  const oldest = streams.flatMap((stream) => waitingSince(stream) ?? [])
  return (
    <Stats>
      <Stat
        label="Streams"
        value={`${count(streams.length)}${more}`}
        note={groups > 0 ? `${count(groups)} shared` : undefined}
      />
      <Stat
        label="Stored messages"
        term="backlog"
        value={`${count(sum(({ stored_messages }) => stored_messages))}${more}`}
      />
      <Stat label="Stored bytes" value={`${bytes(sum(({ stored_bytes }) => stored_bytes))}${more}`} />
      <Stat label="Oldest message" value={oldest.length > 0 ? <Time at={Math.min(...oldest)} /> : '–'} />
    </Stats>
  )
}

function OneStream({ filter }: { filter: string }) {
  const { path } = useBroker()
  const query = useQuery(streamQuery(path, filter))
  if (isMissing(query.error)) {
    return (
      <Empty
        title="There is no stream of this filter"
        action={
          <Anchor component={Link} to={`/b/${path.broker}/streams`} size="sm">
            See all streams
          </Anchor>
        }
      >
        It ended when its last session ended or unsubscribed.
      </Empty>
    )
  }
  return (
    <Loaded query={query}>
      {(found) => (
        <>
          <Details stream={found} />
          <Receivers found={found} />
        </>
      )}
    </Loaded>
  )
}

function Details({ stream }: { stream: StreamDetails }) {
  const { group } = stream
  const since = waitingSince(stream)
  const more = group?.waiting_is_more ? ' or more' : ''
  return (
    <Facts
      rows={[
        ['Stored for', <StoredFor key="for" filter={stream.filter} />],
        ['Stored', `${plural(stream.stored_messages, 'message')}, ${bytes(stream.stored_bytes)}`],
        ...(group
          ? ([
              [
                storing(stream.filter).webhook ? 'Wait for the webhook' : 'Wait for the group',
                `${plural(group.waiting_messages, 'message')}, ${bytes(group.waiting_bytes)}${more}`,
              ],
            ] as [string, string][])
          : []),
        ['Oldest', since ? <Time key="since" at={since} /> : '–'],
        [
          'Removed before delivery',
          stream.trimmed_messages === 0
            ? 'none'
            : `at most ${plural(stream.trimmed_messages, 'message')}, before each session had them`,
        ],
      ]}
    />
  )
}

function Receivers({ found }: { found: StreamDetails }) {
  const { path } = useBroker()
  const isShared = found.group != null
  if (storing(found.filter).webhook) return null
  return (
    <>
      <Text fw={600} size="sm" mt="lg" mb={4}>
        {isShared ? `${plural(found.subscriptions, 'member')} of the group` : 'Sessions'}
      </Text>
      {found.sessions.length > 0 && (
        <Table.ScrollContainer minWidth={320}>
          <Table verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Session</Table.Th>
                <Table.Th>State</Table.Th>
                {!isShared && <Table.Th ta="right">Waiting</Table.Th>}
                {!isShared && <Table.Th ta="right">Since</Table.Th>}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {found.sessions.map((one) => (
                <Table.Tr key={one.client_id}>
                  <Table.Td className="mono">
                    <Anchor
                      component={Link}
                      to={`/b/${path.broker}/sessions`}
                      search={{ session: one.client_id } as never}
                      inherit
                    >
                      {legible(one.client_id)}
                    </Anchor>
                  </Table.Td>
                  <Table.Td>{one.state}</Table.Td>
                  {!isShared && (
                    <Table.Td ta="right">
                      {count(one.waiting_messages)}
                      {one.waiting_is_more && '+'}
                    </Table.Td>
                  )}
                  {!isShared && (
                    <Table.Td ta="right">
                      {one.oldest_waiting_at_ms ? <Time at={one.oldest_waiting_at_ms} /> : '–'}
                    </Table.Td>
                  )}
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      )}
      {found.incomplete && (
        <Text size="xs" c="dimmed">
          The server looks at the first 1,000 sessions and names 100, so some may be missing.
        </Text>
      )}
    </>
  )
}
