import { Button, Select, Text } from '@mantine/core'
import { useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { useMemo, useState } from 'react'
import { useBroker } from '../../api/brokers'
import { absolute, bytes, count, plural } from '../../lib/format'
import { save } from '../../lib/save'
import live from '../../live/live.module.css'
import {
  isInGroup,
  isProblem,
  TRACED_GROUPS,
  TRACED_MAX,
  type TracedRow,
  type TraceView,
  tracedText,
} from '../../live/trace'
import { type TraceState, useTrace } from '../../live/useTrace'
import { Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Empty } from '../../ui/State'

const HEIGHT = 480

const arrows = { in: '→ in', out: '← out', server: 'server' }

const columns: Column<TracedRow>[] = [
  {
    key: 'at',
    header: 'Time',
    width: '76px',
    isExtra: true,
    cell: ({ at_ms }) => <span className={live.soft}>{absolute(at_ms).slice(11)}</span>,
  },
  {
    key: 'direction',
    header: 'Direction',
    width: '56px',
    cell: ({ direction }) => <span className={live.soft}>{arrows[direction]}</span>,
  },
  {
    key: 'kind',
    header: 'Packet',
    width: '112px',
    cell: (event) => (
      <Text component="span" inherit c={isProblem(event) ? 'red' : undefined}>
        {event.kind}
      </Text>
    ),
  },
  {
    key: 'said',
    header: 'Contents',
    width: 'minmax(0, 1fr)',
    cell: (event) => (
      <span className="mono" title={tracedText(event)}>
        {tracedText(event)}
      </span>
    ),
  },
  {
    key: 'size',
    header: 'Size',
    width: '68px',
    isNumber: true,
    isExtra: true,
    cell: (event) => event.bytes !== undefined && <span className={live.soft}>{bytes(event.bytes)}</span>,
  },
]

const fileName = (client: string) => `trace-${client.replaceAll(/[^\w.-]/g, '_').slice(0, 60)}.jsonl`

/** The packets of the client while the trace is on. */
export function Trace() {
  const { client: id } = useParams({ from: '/signed-in/b/$broker/clients/$client' })
  const { path, can } = useBroker()
  const [isOn, setOn] = useState(false)
  const { packets } = useSearch({ from: '/signed-in/b/$broker/clients/$client' })
  const navigate = useNavigate({ from: '/b/$broker/clients/$client' })
  const group = TRACED_GROUPS.find(({ value }) => value === packets)?.value ?? 'all'
  const setGroup = (value: string | null) =>
    void navigate({
      search: (before) => ({ ...before, packets: value === 'all' ? undefined : (value ?? undefined) }),
      replace: true,
      resetScroll: false,
    })
  const { view, state, log } = useTrace(path, id, isOn)
  const rows = useMemo(() => view.rows.filter((event) => isInGroup(event, group)), [view.rows, group])
  if (!can('messages:read')) {
    return (
      <Panel title="Trace">
        <Empty title="Your role cannot read messages">
          A trace shows topics: ask an owner for a role that may read messages.
        </Empty>
      </Panel>
    )
  }
  const isEnded = state.kind === 'ended'
  return (
    <Panel
      isFlush
      title="Trace"
      lead="Packets of this client and decisions of the server about it. Payloads are not shown."
      actions={
        isOn && !isEnded ? (
          <>
            <Button variant="default" onClick={() => log.pause(!view.isPaused)}>
              {view.isPaused ? 'Resume' : 'Pause'}
            </Button>
            <Button variant="default" onClick={() => setOn(false)}>
              Stop
            </Button>
          </>
        ) : (
          <Button
            onClick={() => {
              log.clear()
              setOn(false)
              // useTrace begins a new trace only after it was off.
              queueMicrotask(() => setOn(true))
            }}
          >
            Start trace
          </Button>
        )
      }
    >
      <div className={live.bar}>
        <Select
          aria-label="Packets"
          size="xs"
          data={[...TRACED_GROUPS]}
          value={group}
          allowDeselect={false}
          onChange={setGroup}
        />
        <Button size="xs" variant="default" disabled={rows.length === 0} onClick={() => log.clear()}>
          Clear
        </Button>
        <Button
          size="xs"
          variant="default"
          disabled={rows.length === 0}
          onClick={() => save(exported(rows), fileName(id), 'application/x-ndjson')}
        >
          Export
        </Button>
        <TraceStatus state={state} view={view} />
      </div>
      <Rows
        label="Packets"
        rows={rows}
        columns={columns}
        idOf={({ id }) => String(id)}
        rowPx={34}
        height={HEIGHT}
        empty={
          <Text size="sm" c="dimmed" p="lg" style={{ height: HEIGHT }}>
            {emptyText(state, view)}
          </Text>
        }
      />
    </Panel>
  )
}

function emptyText(state: TraceState, view: TraceView): string {
  if (view.rows.length > 0) return 'No packet of this kind yet.'
  switch (state.kind) {
    case 'off':
      return 'Start the trace, and the packets of this client appear here as they come and go. The client need not be connected.'
    case 'connecting':
      return 'Starting the trace.'
    case 'refused':
      return 'The trace is not running.'
    case 'ended':
      return 'The trace has ended. Start it again.'
    case 'on':
      return state.isConnected
        ? 'The client is connected. Waiting for its next packet.'
        : 'The client is not connected. Waiting for its CONNECT.'
  }
}

function TraceStatus({ state, view }: { state: TraceState; view: TraceView }) {
  const kinds = {
    off: 'away',
    connecting: 'connecting',
    on: 'connected',
    refused: 'refused',
    ended: 'refused',
  }
  const said = {
    off: 'Off',
    connecting: 'Connecting',
    on: view.isPaused ? `Paused, ${plural(view.missed, 'event')} missed` : 'Tracing',
    refused: state.kind === 'refused' ? `${state.why} The page tries again by itself.` : '',
    ended: state.kind === 'ended' ? `Ended: ${state.reason}` : '',
  }[state.kind]
  return (
    <span className={live.status}>
      <span className={live.dot} data-kind={kinds[state.kind]} aria-hidden="true" />
      <span role="status">{said}</span>
      {view.leftOut > 0 && (
        <span>{count(view.leftOut)} left out, over 500 a second or too slow a reader</span>
      )}
      {view.forgotten > 0 && <span>the page keeps the last {count(TRACED_MAX)}</span>}
      {state.kind === 'on' && state.unanswered.length > 0 && (
        <span>no answer from {state.unanswered.join(', ')}: what happens there is not shown</span>
      )}
    </span>
  )
}

/** One JSON object a line, oldest first. */
function exported(rows: readonly TracedRow[]): string {
  const lines = rows.map(({ id: _, ...event }) => `${JSON.stringify(event)}\n`)
  return lines.reverse().join('')
}
