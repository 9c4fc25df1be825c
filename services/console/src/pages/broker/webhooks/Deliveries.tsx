import { Button, Stack } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useBroker } from '../../../api/brokers'
import { type DeadLetter, type Delivery, deadLettersQuery, deliveriesQuery } from '../../../api/webhooks'
import { count, duration, plural } from '../../../lib/format'
import { reasonText } from '../../../lib/incidents'
import { Code } from '../../../ui/Code'
import { Drawer } from '../../../ui/Drawer'
import { Panel } from '../../../ui/Page'
import { type Column, Rows } from '../../../ui/Rows'
import { Facts } from '../../../ui/Stat'
import { Empty, Loaded } from '../../../ui/State'
import { Time } from '../../../ui/Time'
import { useRetry } from './useRetry'

const timeText = (ms: number) => (ms < 1000 ? `${count(ms)} ms` : duration(ms / 1000))

/** The service's answer, or the reason why there is none. The server's error already names the status of a refusal. */
const resultText = ({ error, status }: Delivery) =>
  error ? reasonText(error) : `Taken${status ? `, status ${status}` : ''}`

function Result({ row }: { row: Delivery }) {
  return (
    <>
      <span style={{ color: `var(--${row.error ? 'bad' : 'good'})` }} aria-hidden>
        {row.error ? '✕' : '✓'}
      </span>{' '}
      {resultText(row)}
    </>
  )
}

const columns: Column<Delivery>[] = [
  { key: 'at', header: 'Sent', width: '92px', cell: ({ at_ms }) => <Time at={at_ms} /> },
  {
    key: 'result',
    header: 'Answer',
    width: 'minmax(0, 1fr)',
    isWrapped: true,
    cell: (row) => (
      <span>
        <Result row={row} />
      </span>
    ),
  },
  {
    key: 'type',
    header: 'Event',
    width: 'minmax(0, 1fr)',
    isExtra: true,
    cell: ({ event_type, events }) => (
      <>
        <span className="mono">{event_type}</span>
        {events > 1 && ` and ${count(events - 1)} more`}
      </>
    ),
  },
  {
    key: 'attempt',
    header: 'Attempt',
    width: '72px',
    isNumber: true,
    isExtra: true,
    cell: ({ attempt }) => count(attempt),
  },
  {
    key: 'duration',
    header: 'Took',
    width: '84px',
    isNumber: true,
    isExtra: true,
    cell: ({ duration_ms }) => timeText(duration_ms),
  },
]

/** The last requests of a webhook. An event that became a dead letter can be sent again from here. */
export function Deliveries({ name }: { name: string }) {
  const { path } = useBroker()
  const query = useQuery(deliveriesQuery(path, name))
  const { data: letters } = useQuery(deadLettersQuery(path, name))
  const { delivery } = useSearch({ from: '/signed-in/b/$broker/webhooks' })
  const navigate = useNavigate({ from: '/b/$broker/webhooks' })
  const choose = (number: string | undefined) =>
    void navigate({ search: (before) => ({ ...before, delivery: number }), resetScroll: false })
  const open = query.data?.find(({ number }) => String(number) === delivery)
  const letter = letters?.items.find(({ id }) => id === open?.event_id)
  return (
    <Panel isFlush title="Deliveries" lead="The last 100 requests to your service, and what it answered.">
      <Loaded query={query} height={160}>
        {(rows) =>
          rows.length === 0 ? (
            <Empty title="No request yet">
              Each request to your service is listed here. Send a test event to see the first one.
            </Empty>
          ) : (
            <Rows
              label="Deliveries"
              rows={rows}
              columns={columns}
              idOf={({ number }) => String(number)}
              onOpen={({ number }) => choose(String(number))}
              detailOf={(row) => `request ${row.number}, ${row.event_type}, ${resultText(row)}`}
              rowsShown={8}
            />
          )
        }
      </Loaded>
      <Drawer opened={delivery !== undefined} onClose={() => choose(undefined)} title="Delivery" size={560}>
        {open && <Details row={open} letter={letter} name={name} onDone={() => choose(undefined)} />}
        {query.data && !open && (
          <Empty title="The request is no longer listed">The list has the last 100 requests.</Empty>
        )}
      </Drawer>
    </Panel>
  )
}

interface DetailsProps {
  row: Delivery
  letter: DeadLetter | undefined
  name: string
  onDone: () => void
}

function Details({ row, letter, name, onDone }: DetailsProps) {
  const { can } = useBroker()
  const retrying = useRetry(name, onDone)
  return (
    <Stack gap="md">
      <Facts
        rows={[
          ['Answer', <Result key="answer" row={row} />],
          ['Sent', <Time key="at" at={row.at_ms} />],
          ['Took', timeText(row.duration_ms)],
          ['Attempt', count(row.attempt)],
          ['Events', plural(row.events, 'event')],
          [
            'First event',
            <span key="event" className="mono">
              {row.event_type}
            </span>,
          ],
          [
            'Id',
            <span key="id" className="mono">
              {row.event_id}
            </span>,
          ],
        ]}
      />
      {letter && (
        <>
          <Code text={JSON.stringify(letter.event, null, 2)} label="the event" />
          {letter.is_retried
            ? 'The server is sending this event again.'
            : can('access:write') && (
                <Button
                  onClick={() => retrying.mutate(letter.id)}
                  loading={retrying.isPending}
                  style={{ alignSelf: 'flex-start' }}
                >
                  Send again
                </Button>
              )}
        </>
      )}
    </Stack>
  )
}
