import { Badge, Button } from '@mantine/core'
import { IconPlus, IconWebhook } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useBroker } from '../../api/brokers'
import { statusQuery, type Webhook, webhooksQuery } from '../../api/webhooks'
import { count } from '../../lib/format'
import { Drawer } from '../../ui/Drawer'
import { Page, Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Empty, Loaded } from '../../ui/State'
import { WebhookForm } from './webhooks/WebhookForm'
import { WebhookPage } from './webhooks/WebhookPage'

const NEW = '+'

const columns: Column<Webhook>[] = [
  { key: 'name', header: 'Name', width: 'minmax(0, 1fr)', cell: ({ name }) => name },
  {
    key: 'url',
    header: 'URL',
    width: 'minmax(0, 2fr)',
    cell: ({ url }) => <span className="mono">{url}</span>,
  },
  {
    key: 'events',
    header: 'Events',
    width: 'minmax(0, 1fr)',
    isExtra: true,
    cell: ({ events }) => events.join(', '),
  },
  {
    key: 'queued',
    header: 'Queued',
    width: '72px',
    isNumber: true,
    isExtra: true,
    cell: (row) => <Queued name={row.name} />,
  },
  { key: 'state', header: 'State', width: '92px', cell: (row) => <State row={row} /> },
]

function Queued({ name }: { name: string }) {
  const { path } = useBroker()
  const { data } = useQuery(statusQuery(path, name))
  return data ? count(data.queued_events) : '–'
}

function State({ row }: { row: Webhook }) {
  const { path } = useBroker()
  const { data } = useQuery(statusQuery(path, row.name))
  if (row.enabled === false)
    return (
      <Badge variant="default" tt="none" fw={500}>
        disabled
      </Badge>
    )
  // The status has not loaded.
  if (!data) return '–'
  if (data.failing_since_ms)
    return (
      <Badge color="red" variant="light" tt="none" fw={500}>
        ✕ failing
      </Badge>
    )
  return (
    <Badge color="green" variant="light" tt="none" fw={500}>
      ✓ works
    </Badge>
  )
}

/** Services that receive events of the broker. */
export function Webhooks() {
  const { path, can } = useBroker()
  const { webhook, edit } = useSearch({ from: '/signed-in/b/$broker/webhooks' })
  const navigate = useNavigate({ from: '/b/$broker/webhooks' })
  const client = useQueryClient()
  const query = useQuery(webhooksQuery(path))
  const change = (to: { webhook?: string; edit?: string }) =>
    void navigate({ search: (before) => ({ ...before, ...to }) })
  const add = can('access:write') && (
    <Button leftSection={<IconPlus size={16} />} onClick={() => change({ edit: NEW })}>
      Add webhook
    </Button>
  )
  const close = () => change({ edit: undefined })
  const shown = query.data?.items.find(({ name }) => name === webhook)
  const edited = query.data?.items.find(({ name }) => name === edit)
  const isEmpty = query.data?.items.length === 0
  const isOneLoading = query.data === undefined && webhook !== undefined
  return (
    <>
      {shown ? (
        <WebhookPage webhook={shown} onEdit={() => change({ edit: shown.name })} />
      ) : (
        <Page
          title={isOneLoading ? webhook : 'Webhooks'}
          lead={
            isOneLoading
              ? undefined
              : 'The server posts connects, disconnects and messages to your service as CloudEvents.'
          }
          actions={!isOneLoading && !isEmpty && add}
        >
          <Panel isFlush>
            <Loaded query={query} height={400}>
              {({ items }) =>
                items.length === 0 ? (
                  <Empty icon={<IconWebhook size={28} stroke={1.4} />} title="No webhook yet" action={add}>
                    While your service does not answer, events wait in a queue for up to three days. An event
                    that your service rejects, or does not accept for a day, becomes a dead letter. You can
                    send it again.
                  </Empty>
                ) : (
                  <Rows
                    label="Webhooks"
                    rows={items}
                    columns={columns}
                    idOf={({ name }) => name}
                    onOpen={({ name }) => change({ webhook: name })}
                  />
                )
              }
            </Loaded>
          </Panel>
        </Page>
      )}
      <Drawer
        opened={edit !== undefined && (edit === NEW || query.data !== undefined)}
        onClose={close}
        title={edited ? `Webhook ${edited.name}` : 'Add webhook'}
        size={520}
      >
        {edit !== undefined && (
          <WebhookForm
            key={edit}
            row={edited}
            onDone={(name) => {
              void client.invalidateQueries({ queryKey: ['b', path.broker, 'webhooks'] })
              change({ edit: undefined, webhook: name })
            }}
          />
        )}
      </Drawer>
    </>
  )
}
