import { Anchor, Button, Group, TextInput } from '@mantine/core'
import { IconMailSearch, IconSearch } from '@tabler/icons-react'
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { useBroker } from '../../api/brokers'
import { type StoredMessages, storedMessagesQuery } from '../../api/stored'
import { around } from '../../lib/around'
import { now } from '../../lib/clock'
import { type Followed, type FollowedMessage, follow, removalAt } from '../../lib/follow'
import { bytes, count, plural } from '../../lib/format'
import { storedSession, targetOf } from '../../lib/snippets'
import { Drawer } from '../../ui/Drawer'
import { Long } from '../../ui/Long'
import { Page, Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Empty, Loaded } from '../../ui/State'
import { Term } from '../../ui/Term'
import { Time } from '../../ui/Time'
import ui from '../../ui/ui.module.css'
import { Filters } from './messages/Filters'
import { GONE, REMOVED_BY, removedText } from './messages/gone'
import { OneMessage } from './messages/OneMessage'

const NOT_STORED =
  'Messages for sessions that end with their connection are never stored, so they are not listed here.'

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
            has not acknowledged it. {NOT_STORED}
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

/** Follows the messages of a topic: each answer is compared with the previous one. */
function useFollowed(found: StoredMessages | undefined, updatedAt: number): Followed | null {
  const [known, setKnown] = useState<{ of: number; followed: Followed } | null>(null)
  if (!found || known?.of === updatedAt) return known?.followed ?? null
  const followed = follow(known?.followed ?? null, found, now())
  setKnown({ of: updatedAt, followed })
  return followed
}

function Found({ topic, time, chosen }: FoundProps) {
  const { path } = useBroker()
  const navigate = useNavigate({ from: '/b/$broker/messages' })
  const query = useQuery(storedMessagesQuery(path, topic))
  const followed = useFollowed(query.data, query.dataUpdatedAt)
  const choose = (at: string | undefined) =>
    void navigate({ search: (before) => ({ ...before, at }), replace: true })
  const message = followed?.messages.find(({ position }) => position === chosen)
  return (
    <>
      <Loaded query={query} height={300}>
        {(found) => (
          <>
            <List
              found={found}
              messages={followed?.messages ?? []}
              topic={topic}
              time={time}
              onOpen={choose}
            />
            {found.filters.length > 0 && <Filters found={found} />}
          </>
        )}
      </Loaded>
      <Drawer
        opened={chosen !== undefined}
        onClose={() => choose(undefined)}
        title={<Long text={topic} what="topic" />}
      >
        <Loaded query={query}>
          {() =>
            message && followed ? (
              <OneMessage message={message} acknowledged={followed.acknowledged} />
            ) : (
              <Empty
                title="The message is not stored any more"
                action={
                  <Button variant="default" onClick={() => choose(undefined)}>
                    See the stored messages
                  </Button>
                }
              >
                It was removed before you opened this page: each session acknowledged it, it expired, or a
                limit removed it.
              </Empty>
            )
          }
        </Loaded>
      </Drawer>
    </>
  )
}

const columns: Column<FollowedMessage>[] = [
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

function Summary({ message: { waiting, in_flight, receivers, gone } }: { message: FollowedMessage }) {
  if (gone) return GONE[gone.why].state
  const said = [
    waiting > 0 && `waits for ${count(waiting)}`,
    in_flight > 0 && `in flight to ${count(in_flight)}`,
    receivers.some(({ state }) => state === 'expired') && 'expired',
  ].filter(Boolean)
  return said.length > 0 ? said.join(', ') : 'acknowledged by all'
}

interface ListProps {
  found: StoredMessages
  messages: readonly FollowedMessage[]
  topic: string
  time: string | undefined
  onOpen: (position: string) => void
}

function List({ found: { filters, incomplete }, messages, topic, time, onOpen }: ListProps) {
  const items = around(messages, time)
  if (filters.length === 0 && messages.length === 0) return <NotStored topic={topic} />
  return (
    <Panel
      isFlush
      title="Stored messages"
      lead="The latest first. A message leaves the store when the only session of its filter has acknowledged it, when it expires, or at a limit of the queue. Messages of a filter that several sessions share stay longer. A message that leaves while this page is open stays in the list, with the reason."
    >
      <Rows
        label="Stored messages"
        rows={items}
        columns={columns}
        idOf={({ position }) => position}
        onOpen={({ position }) => onOpen(position)}
        detailOf={({ position }) => `position ${position}`}
        empty={
          messages.length > 0 ? (
            <NotThen all={messages} filters={filters} time={time} topic={topic} />
          ) : incomplete ? (
            <Empty title="Not among the latest messages of these filters">
              The server looks at their last 500 messages, and this topic is in none of them. An older message
              may still be stored.
            </Empty>
          ) : (
            <Empty title="No message of this topic is stored now">
              Each session has acknowledged what was published, or it was removed, as shown below. Leave this
              page open and publish again: the list then says when the message is acknowledged, and by whom.
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

function NotStored({ topic }: { topic: string }) {
  const { broker, endpoint } = useBroker()
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

interface NotThenProps {
  all: readonly FollowedMessage[]
  filters: StoredMessages['filters']
  time: string | undefined
  topic: string
}

/** None of the stored messages was published around the named time. */
function NotThen({ all, filters, time, topic }: NotThenProps) {
  const { broker } = useBroker()
  const removal = time ? removalAt(filters, new Date(time).getTime()) : null
  const oldest = Math.min(...all.map(({ at_ms }) => at_ms))
  return (
    <Empty
      title="No stored message from that time"
      action={
        <Anchor component={Link} to={`/b/${broker.name}/messages`} search={{ topic } as never}>
          Show the stored messages of all times
        </Anchor>
      }
    >
      The oldest of {plural(all.length, 'stored message')} is of <Time at={oldest} />.{' '}
      {removal
        ? `${REMOVED_BY[removal.reason]} removed messages of that period ${removedText(removal)}.`
        : 'An earlier one was acknowledged by each session, or has expired, unless it is among the removed ones below.'}
    </Empty>
  )
}
