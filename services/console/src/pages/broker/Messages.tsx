import { Anchor, Badge, Button, Drawer, Group, Stack, Text, TextInput } from '@mantine/core'
import { IconMailSearch, IconSearch } from '@tabler/icons-react'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { useBroker } from '../../api/brokers'
import {
  type MessageReceiver,
  type ReceiverState,
  type StoredMessage,
  type StoredMessages,
  storedMessagesQuery,
} from '../../api/stored'
import { around } from '../../lib/around'
import { bytes, count, plural } from '../../lib/format'
import { storedSession, targetOf } from '../../lib/snippets'
import { storing } from '../../lib/storing'
import { ClientLink } from '../../ui/ClientLink'
import { Long } from '../../ui/Long'
import { Page, Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Facts } from '../../ui/Stat'
import { Empty, Loaded } from '../../ui/State'
import { Term } from '../../ui/Term'
import { Time } from '../../ui/Time'
import ui from '../../ui/ui.module.css'

/** Where the messages of a topic are: stored, acknowledged by whom, waiting for whom. */
export function Messages() {
  const { path } = useBroker()
  const { topic, at, time } = useSearch({ from: '/signed-in/b/$broker/messages' })
  const navigate = useNavigate({ from: '/b/$broker/messages' })
  return (
    <Page
      title="Where is my message?"
      lead={
        <>
          Stored messages of a topic, and the <Term of="session">sessions</Term> that have acknowledged them
          or still wait for them.
        </>
      }
    >
      <Ask
        key={`${topic} ${time}`}
        topic={topic ?? ''}
        time={time ?? ''}
        onAsk={(topic, time) => void navigate({ search: { topic, time } })}
      />
      {topic ? (
        <Found key={`${path.broker} ${topic}`} topic={topic} time={time} chosen={at} />
      ) : (
        <Panel>
          <Empty icon={<IconMailSearch size={28} stroke={1.4} />} title="Name a topic">
            The server stores a QoS 1 or 2 message while a session with an expiry subscribes to its topic and
            has not acknowledged it.
          </Empty>
        </Panel>
      )}
    </Page>
  )
}

interface AskProps {
  topic: string
  time: string
  onAsk: (topic: string | undefined, time: string | undefined) => void
}

function Ask({ topic, time, onAsk }: AskProps) {
  const [typed, setTyped] = useState(topic)
  const [typedTime, setTypedTime] = useState(time)
  const isFilter = /[+#]/.test(typed)
  const submit = (event: FormEvent) => {
    event.preventDefault()
    if (!isFilter) onAsk(typed || undefined, typedTime || undefined)
  }
  return (
    <form onSubmit={submit}>
      <Group mb="md" gap="sm" align="flex-end">
        <TextInput
          data-search
          label="Topic"
          placeholder="plant/7/pump"
          leftSection={<IconSearch size={16} />}
          value={typed}
          onChange={(event) => setTyped(event.currentTarget.value)}
          error={isFilter ? 'A topic has no + and no #.' : undefined}
          style={{ flex: '1 1 220px', maxWidth: 480 }}
        />
        <TextInput
          type="datetime-local"
          label="Published within 5 minutes of (optional)"
          value={typedTime}
          onChange={(event) => setTypedTime(event.currentTarget.value)}
        />
        <Button type="submit" disabled={isFilter}>
          Find messages
        </Button>
      </Group>
    </form>
  )
}

interface FoundProps {
  topic: string
  time: string | undefined
  chosen: string | undefined
}

function Found({ topic, time, chosen }: FoundProps) {
  const { path } = useBroker()
  const navigate = useNavigate({ from: '/b/$broker/messages' })
  const query = useQuery({ ...storedMessagesQuery(path, topic), placeholderData: keepPreviousData })
  const choose = (at: string | undefined) =>
    void navigate({ search: (before) => ({ ...before, at }), replace: true })
  const message = query.data?.items.find(({ position }) => position === chosen)
  return (
    <>
      <Loaded query={query} height={300}>
        {(found) => (
          <>
            <List found={found} topic={topic} time={time} onOpen={choose} />
            {found.filters.length > 0 && <Filters found={found} />}
          </>
        )}
      </Loaded>
      <Drawer
        opened={chosen !== undefined}
        onClose={() => choose(undefined)}
        title={<Long text={topic} what="topic" />}
      >
        {message && <OneMessage message={message} />}
        {query.data && !message && (
          <Empty title="The message is not stored any more">
            Each session has acknowledged it, or a limit has removed it.
          </Empty>
        )}
      </Drawer>
    </>
  )
}

const columns: Column<StoredMessage>[] = [
  {
    key: 'at',
    header: 'Published',
    width: 'minmax(88px, 1fr)',
    cell: ({ at_ms }) => <Time at={at_ms} />,
  },
  {
    key: 'state',
    header: 'State',
    width: 'minmax(0, 2fr)',
    cell: (message) => <Summary message={message} />,
  },
  { key: 'qos', header: 'QoS', width: '48px', isNumber: true, isExtra: true, cell: ({ qos }) => qos },
  {
    key: 'bytes',
    header: 'Payload',
    width: '88px',
    isNumber: true,
    isExtra: true,
    cell: ({ payload_bytes }) => bytes(payload_bytes),
  },
  {
    key: 'acknowledged',
    header: 'Acknowledged',
    width: '112px',
    isNumber: true,
    isExtra: true,
    cell: ({ acknowledged }) => count(acknowledged),
  },
  {
    key: 'position',
    header: 'Position',
    width: 'minmax(0, 2fr)',
    isExtra: true,
    cell: ({ position }) => <span className="mono">{position}</span>,
  },
]

function Summary({ message: { waiting, in_flight, receivers } }: { message: StoredMessage }) {
  const said = [
    waiting > 0 && `waits for ${count(waiting)}`,
    in_flight > 0 && `in flight to ${count(in_flight)}`,
    receivers.some(({ state }) => state === 'expired') && 'expired',
  ].filter(Boolean)
  return said.length > 0 ? said.join(', ') : 'acknowledged by all'
}

interface ListProps {
  found: StoredMessages
  topic: string
  time: string | undefined
  onOpen: (position: string) => void
}

function List({ found: { items: all, filters, incomplete }, topic, time, onOpen }: ListProps) {
  const { broker, endpoint } = useBroker()
  const items = around(all, time)
  if (filters.length === 0) {
    return (
      <Panel>
        <Empty
          title="No stored session subscribes to this topic"
          command={endpoint ? storedSession(targetOf(endpoint), topic) : undefined}
          action={
            <Anchor component={Link} to={`/b/${broker.name}/live`} search={{ filters: topic } as never}>
              Watch the topic live
            </Anchor>
          }
        >
          The server delivers its messages to connected clients at once and stores none. A session with an
          expiry and a subscription makes the server store them.
        </Empty>
      </Panel>
    )
  }
  return (
    <Panel
      isFlush
      title="Stored messages"
      lead="The latest first. A message leaves the store when the only session of its filter has acknowledged it, or at a limit of the queue. Messages of a filter that several sessions share stay longer."
    >
      <Rows
        label="Stored messages"
        rows={items}
        columns={columns}
        idOf={({ position }) => position}
        onOpen={({ position }) => onOpen(position)}
        detailOf={({ position }) => `position ${position}`}
        empty={
          all.length > 0 ? (
            <NotThen all={all} topic={topic} />
          ) : incomplete ? (
            <Empty title="Not among the latest messages of these filters">
              The server looks at their last 500 messages, and this topic is in none of them. An older message
              may still be stored.
            </Empty>
          ) : (
            <Empty title="Nothing of this topic is stored now">
              Each session has acknowledged what was published, or a limit has removed it.
            </Empty>
          )
        }
      />
      {incomplete && items.length > 0 && (
        <p className={ui.note}>
          The server looks at the last 500 messages of these filters and at 1,000 sessions. There are more.
        </p>
      )}
    </Panel>
  )
}

/** None of the stored messages was published around the named time. */
function NotThen({ all, topic }: { all: StoredMessage[]; topic: string }) {
  const { broker } = useBroker()
  const oldest = Math.min(...all.map(({ at_ms }) => at_ms))
  return (
    <Empty
      title="No stored message of that time"
      action={
        <Anchor component={Link} to={`/b/${broker.name}/messages`} search={{ topic } as never}>
          Show the stored messages of all times
        </Anchor>
      }
    >
      The oldest of {plural(all.length, 'stored message')} is of <Time at={oldest} />. An earlier one was
      acknowledged by each session, or a limit has removed it.
    </Empty>
  )
}

/** A filter, and the webhook that it belongs to if no session has it. */
function StoredFor({ filter }: { filter: string }) {
  const { broker } = useBroker()
  const { filter: own, webhook } = storing(filter)
  return (
    <span>
      {webhook && (
        <>
          webhook{' '}
          <Anchor component={Link} to={`/b/${broker.name}/webhooks`} search={{ webhook } as never} inherit>
            {webhook}
          </Anchor>
          :{' '}
        </>
      )}
      <span className="mono">{own}</span>
    </span>
  )
}

function Filters({ found: { filters } }: { found: StoredMessages }) {
  return (
    <Panel isFlush title="Filters that store this topic">
      <Rows
        label="Filters"
        rows={filters}
        columns={[
          {
            key: 'filter',
            header: 'Filter',
            width: 'minmax(0, 2fr)',
            isWrapped: true,
            cell: ({ filter }) => <StoredFor filter={filter} />,
          },
          {
            key: 'subscriptions',
            header: 'Subscriptions',
            width: '112px',
            isNumber: true,
            isExtra: true,
            cell: ({ subscriptions }) => count(subscriptions),
          },
          {
            key: 'trimmed',
            header: 'Removed by a limit',
            width: '136px',
            isNumber: true,
            cell: ({ trimmed }) => count(trimmed),
          },
        ]}
        idOf={({ filter }) => filter}
      />
    </Panel>
  )
}

const STATES: Record<ReceiverState, { label: string; color: string }> = {
  waiting: { label: 'waits: offline', color: 'orange' },
  expired: { label: 'expired first', color: 'red' },
  in_flight: { label: 'in flight', color: 'gray' },
  acknowledged: { label: 'acknowledged', color: 'green' },
}

function OneMessage({ message }: { message: StoredMessage }) {
  const { broker } = useBroker()
  const { acknowledged, in_flight, waiting, receivers } = message
  const more = acknowledged + in_flight + waiting - receivers.length
  const receiverColumns: Column<MessageReceiver>[] = [
    {
      key: 'client',
      header: 'Receiver',
      width: 'minmax(0, 2fr)',
      isWrapped: true,
      cell: ({ client_id, filter }) =>
        client_id ? <ClientLink broker={broker.name} id={client_id} /> : <StoredFor filter={filter} />,
    },
    {
      key: 'state',
      header: 'State',
      width: 'minmax(120px, 1fr)',
      cell: ({ state, client_id }) => (
        <Badge variant="light" color={STATES[state].color} tt="none" fw={500}>
          {state === 'waiting' && !client_id ? 'waiting' : STATES[state].label}
        </Badge>
      ),
    },
  ]
  return (
    <>
      <Facts
        rows={[
          ['Published', <Time key="at" at={message.at_ms} />],
          [
            'Stored at',
            <span key="position" className="mono">
              {message.position}
            </span>,
          ],
          ['QoS', message.qos],
          ['Payload', bytes(message.payload_bytes)],
          ['Expires', message.expires_at_ms ? <Time key="expires" at={message.expires_at_ms} /> : 'never'],
          [
            'Stored for',
            <Stack key="filters" gap={0}>
              {message.filters.map((filter) => (
                <StoredFor key={filter} filter={filter} />
              ))}
            </Stack>,
          ],
        ]}
      />
      <Text size="sm" mt="md" mb="xs">
        {plural(acknowledged, 'receiver')} acknowledged it, {count(in_flight)} in flight, {count(waiting)}{' '}
        waiting.
      </Text>
      <Rows
        label="Receivers"
        rows={receivers}
        columns={receiverColumns}
        idOf={({ client_id, filter }) => `${client_id} ${filter}`}
        empty={
          <Empty title="No session waits for this message">
            Its receivers have acknowledged it, or their sessions have ended.
          </Empty>
        }
      />
      {more > 0 && (
        <Text size="xs" c="dimmed" mt="xs">
          {count(more)} more receivers.
        </Text>
      )}
    </>
  )
}
