import { Alert, Button, Group, Stack } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useBroker } from '../../../api/brokers'
import type { Schemas } from '../../../api/client'
import {
  type DeadLetter,
  deadLettersQuery,
  deleteWebhook,
  removeDeadLetters,
  statusQuery,
  testWebhook,
  type Webhook,
} from '../../../api/webhooks'
import { now } from '../../../lib/clock'
import { bytes, count, plural } from '../../../lib/format'
import { reasonText } from '../../../lib/incidents'
import { Code } from '../../../ui/Code'
import { Confirm } from '../../../ui/Confirm'
import { Drawer } from '../../../ui/Drawer'
import { done, failed } from '../../../ui/notify'
import { Page, Panel } from '../../../ui/Page'
import { type Column, Rows } from '../../../ui/Rows'
import { Facts, Stat, Stats } from '../../../ui/Stat'
import { Empty, Loaded } from '../../../ui/State'
import { Time } from '../../../ui/Time'
import { Deliveries } from './Deliveries'
import { SigningKey } from './SigningKey'
import { useRetry } from './useRetry'

type Status = Schemas['WebhookStatus']

/** How a webhook gets on, its last requests, and the events that its service refused. */
export function WebhookPage({ webhook, onEdit }: { webhook: Webhook; onEdit: () => void }) {
  const { path, can } = useBroker()
  const query = useQuery(statusQuery(path, webhook.name))
  return (
    <Page
      title={webhook.name}
      actions={can('access:write') && <Actions webhook={webhook} status={query.data} onEdit={onEdit} />}
    >
      <Loaded query={query}>
        {(status) => (
          // Together, so that nothing jumps when the status has come.
          <>
            <Numbers status={status} />
            <Panel title="Settings">
              <Facts
                rows={[
                  [
                    'URL',
                    <span key="url" className="mono">
                      {webhook.url}
                    </span>,
                  ],
                  ['Events', webhook.events.join(', ')],
                  [
                    'Topic filters',
                    <span key="filters" className="mono">
                      {webhook.filters?.join(', ') || '–'}
                    </span>,
                  ],
                  ['Events in a request', `at most ${webhook.batch_max ?? 1}`],
                ]}
              />
            </Panel>
            <Deliveries name={webhook.name} />
            <DeadLetters name={webhook.name} />
            <SigningKey name={webhook.name} status={status} />
          </>
        )}
      </Loaded>
    </Page>
  )
}

function Numbers({ status }: { status: Status }) {
  const { last_failure, failing_since_ms, next_attempt_at_ms } = status
  return (
    <>
      {failing_since_ms && last_failure && (
        <Alert color="red" variant="light" mb="md" title="Your service does not accept events">
          {reasonText(last_failure.reason)}. The first attempt failed <Time at={failing_since_ms} />
          {next_attempt_at_ms && next_attempt_at_ms > now() && (
            <>
              , the next one is <Time at={next_attempt_at_ms} />
            </>
          )}
          . Events wait in the queue.
        </Alert>
      )}
      <Stats>
        <Stat
          label="Queued"
          value={count(status.queued_events)}
          unit={status.queued_events === 1 ? 'event' : 'events'}
          note={
            status.oldest_queued_at_ms ? (
              <>
                oldest <Time at={status.oldest_queued_at_ms} />
              </>
            ) : (
              bytes(status.queued_bytes)
            )
          }
        />
        <Stat
          label="Delivered"
          value={count(status.delivered)}
          unit={status.delivered === 1 ? 'event' : 'events'}
          note={status.last_success_at_ms && <Time at={status.last_success_at_ms} />}
        />
        <Stat
          label="Dead letters"
          value={count(status.dead_letters)}
          note={`${count(status.dead)} since the webhook was created`}
        />
        <Stat
          label="Lost"
          value={count(status.lost)}
          unit={status.lost === 1 ? 'event' : 'events'}
          note="to the limits of the queue"
        />
      </Stats>
    </>
  )
}

interface ActionsProps {
  webhook: Webhook
  status: Status | undefined
  onEdit: () => void
}

function Actions({ webhook, status, onEdit }: ActionsProps) {
  const { broker, path } = useBroker()
  const client = useQueryClient()
  const navigate = useNavigate()
  const { name } = webhook
  const testing = useMutation({
    mutationFn: () => testWebhook(path, name),
    onSuccess: () => {
      done('The test event is queued.')
      void client.invalidateQueries({ queryKey: ['b', path.broker, 'webhook status', name] })
    },
    onError: failed,
  })
  return (
    <>
      <Button variant="default" onClick={() => testing.mutate()} loading={testing.isPending}>
        Send test event
      </Button>
      <Button variant="default" onClick={onEdit}>
        Edit
      </Button>
      <Confirm
        verb="Delete webhook"
        title={`Delete ${name}?`}
        loses={`${status ? `${plural(status.queued_events, 'queued event')} and ${plural(status.dead_letters, 'dead letter')}` : 'All queued events and dead letters'} are lost, with the settings and the signing key.`}
        act={() => deleteWebhook(path, name)}
        onDone={() => {
          done(`${name} was deleted.`)
          void client.invalidateQueries({ queryKey: ['b', path.broker, 'webhooks'] })
          void navigate({ to: '/b/$broker/webhooks', params: { broker: broker.name } })
        }}
      >
        {(open) => (
          <Button variant="light" color="red" onClick={open}>
            Delete
          </Button>
        )}
      </Confirm>
    </>
  )
}

const columns: Column<DeadLetter>[] = [
  { key: 'at', header: 'Given up', width: '92px', cell: ({ at_ms }) => <Time at={at_ms} /> },
  {
    key: 'failure',
    header: 'Reason',
    width: 'minmax(0, 1fr)',
    isWrapped: true,
    cell: ({ failure, is_retried }) => {
      if (is_retried) return <span>being sent again</span>
      return <span>{failure ? reasonText(failure.reason) : '–'}</span>
    },
  },
  {
    key: 'type',
    header: 'Event',
    width: 'minmax(0, 1fr)',
    isExtra: true,
    cell: ({ event }) => <span className="mono">{String((event as { type?: string }).type ?? '')}</span>,
  },
  {
    key: 'attempts',
    header: 'Attempts',
    width: '72px',
    isNumber: true,
    isExtra: true,
    cell: ({ attempts }) => attempts,
  },
]

/** The text names the statuses of `is_final` in services/edge/src/webhooks/deliver.rs, and the day of TRY_MS_MAX in mod.rs there. */
function DeadLetters({ name }: { name: string }) {
  const { path, can } = useBroker()
  const client = useQueryClient()
  const query = useQuery(deadLettersQuery(path, name))
  const { letter } = useSearch({ from: '/signed-in/b/$broker/webhooks' })
  const navigate = useNavigate({ from: '/b/$broker/webhooks' })
  const choose = (id: string | undefined) =>
    void navigate({ search: (before) => ({ ...before, letter: id }), resetScroll: false })
  const open = query.data?.items.find(({ id }) => id === letter)
  const closeAndReload = () => {
    if (letter !== undefined) choose(undefined)
    void client.invalidateQueries({ queryKey: ['b', path.broker] })
  }
  const retrying = useRetry(name, () => letter !== undefined && choose(undefined))
  const items = query.data?.items ?? []
  const actions = can('access:write') && items.length > 0 && (
    <>
      <Button
        size="xs"
        variant="default"
        onClick={() => retrying.mutate(undefined)}
        loading={retrying.isPending}
      >
        Send all again
      </Button>
      <Confirm
        verb="Remove"
        title="Remove all dead letters?"
        loses={`${plural(items.length, 'event')}${query.data?.isCut ? ' or more' : ''} will never be delivered.`}
        act={() => removeDeadLetters(path, name)}
        onDone={closeAndReload}
      >
        {(ask) => (
          <Button size="xs" variant="default" onClick={ask}>
            Remove all
          </Button>
        )}
      </Confirm>
    </>
  )
  return (
    <Panel
      isFlush
      title="Dead letters"
      lead="Events that your service rejected with status 400, 410, 413, 415 or 422, or did not accept for a day."
      actions={actions}
    >
      <Loaded query={query}>
        {() =>
          items.length === 0 ? (
            <Empty title="No dead letter">
              Events that your service rejects, or does not accept for a day, are listed here. You can send
              them again.
            </Empty>
          ) : (
            <Rows
              label="Dead letters"
              rows={items}
              columns={columns}
              idOf={({ id }) => id}
              onOpen={({ id }) => choose(id)}
              detailOf={({ id }) => id}
            />
          )
        }
      </Loaded>
      <Drawer opened={letter !== undefined} onClose={() => choose(undefined)} title="Dead letter" size={560}>
        {query.data && !open && (
          <Empty title="There is no such dead letter any more">It was sent again, or removed.</Empty>
        )}
        {open && (
          <Stack gap="md">
            <Code text={JSON.stringify(open.event, null, 2)} label="the event" />
            {can('access:write') && (
              <Group gap="xs">
                <Button onClick={() => retrying.mutate(open.id)} loading={retrying.isPending}>
                  Send again
                </Button>
                <Confirm
                  verb="Remove"
                  title="Remove this dead letter?"
                  loses="The event will never be delivered."
                  act={() => removeDeadLetters(path, name, open.id)}
                  onDone={closeAndReload}
                >
                  {(ask) => (
                    <Button variant="default" onClick={ask}>
                      Remove
                    </Button>
                  )}
                </Confirm>
              </Group>
            )}
          </Stack>
        )}
      </Drawer>
    </Panel>
  )
}
