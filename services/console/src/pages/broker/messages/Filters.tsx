import { Anchor } from '@mantine/core'
import { Link } from '@tanstack/react-router'
import { useBroker } from '../../../api/brokers'
import type { Schemas } from '../../../api/client'
import type { StoredMessages } from '../../../api/stored'
import { bytes, count, duration, plural } from '../../../lib/format'
import { lower } from '../../../lib/limits'
import { Panel } from '../../../ui/Page'
import { Rows } from '../../../ui/Rows'
import { Time } from '../../../ui/Time'
import ui from '../../../ui/ui.module.css'
import { REMOVED_BY, removedText } from './gone'
import { StoredFor } from './StoredFor'

/** The filters that make the server store a topic, with what limits have removed of each. */
export function Filters({ found: { filters } }: { found: StoredMessages }) {
  const removed = filters.reduce((sum, { trimmed }) => sum + trimmed, 0)
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
            header: 'Removed before delivery',
            width: '136px',
            isNumber: true,
            cell: ({ trimmed }) => count(trimmed),
          },
        ]}
        idOf={({ filter }) => filter}
      />
      {filters.map(({ filter, removed }) => (
        <Removals key={filter} filter={filter} removed={removed} />
      ))}
      {removed > 0 && <WhichLimits removed={removed} />}
    </Panel>
  )
}

/** Removals that the note lists of a filter; the API has a few more. */
const SHOWN_MAX = 4

function Removals({ filter, removed }: Pick<StoredMessages['filters'][number], 'filter' | 'removed'>) {
  if (removed.length === 0) return null
  return (
    <div className={ui.note}>
      Removed from <StoredFor filter={filter} />:
      <ul>
        {removed.slice(0, SHOWN_MAX).map((one) => (
          <li key={`${one.reason} ${one.first_at_ms}`}>
            {REMOVED_BY[one.reason]} removed {plural(one.messages, 'message')} {removedText(one)}, published{' '}
            <Time at={one.published_from_ms} /> to <Time at={one.published_to_ms} />.
          </li>
        ))}
      </ul>
    </div>
  )
}

function WhichLimits({ removed }: { removed: number }) {
  const { broker } = useBroker()
  const limits = queueLimits(broker.limits, broker.ceiling)
  return (
    <p className={ui.note}>
      {plural(removed, 'message')} left before each session had them.{' '}
      {limits.length > 0
        ? `Limits of this broker: ${limits.join('; ')}.`
        : 'This broker sets no queue limits, so the limits of the server removed them.'}{' '}
      <Anchor component={Link} to={`/b/${broker.name}/settings`} inherit>
        Change the limits
      </Anchor>{' '}
      or see{' '}
      <Anchor
        component={Link}
        to={`/b/${broker.name}/incidents`}
        search={{ kind: 'messages_dropped' } as never}
        inherit
      >
        which clients missed messages
      </Anchor>
      .
    </p>
  )
}

type Limits = Schemas['Limits'] | null | undefined

/** Sentences for the limits that remove stored messages: the broker's own or those of its plan, whichever is lower. */
export function queueLimits(own: Limits, ceiling: Limits): string[] {
  const client = (name: 'queue_messages' | 'queue_bytes' | 'queue_age_s') =>
    lower(own?.client?.[name], ceiling?.client?.[name])
  const all = lower(own?.broker?.queue_bytes, ceiling?.broker?.queue_bytes)
  const [messages, size, age] = [client('queue_messages'), client('queue_bytes'), client('queue_age_s')]
  return [
    messages !== null &&
      `${plural(messages, 'message')} that ${messages === 1 ? 'waits' : 'wait'} for a session`,
    size !== null && `${bytes(size)} that wait for a session`,
    age !== null && `${duration(age)} that a message waits`,
    all !== null && `${bytes(all)} of all queues`,
  ].filter((said) => said !== false)
}
