import { Anchor, Button, SegmentedControl } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useBroker } from '../../api/brokers'
import { incidentsQuery } from '../../api/live'
import { Chart } from '../../charts/Chart'
import classes from '../../charts/chart.module.css'
import { type Live, useLiveMetrics } from '../../charts/metrics'
import { rates } from '../../charts/rates'
import { bytes, count, si } from '../../lib/format'
import { IncidentTable } from '../../ui/IncidentTable'
import { Page, Panel } from '../../ui/Page'
import { Stat, Stats } from '../../ui/Stat'
import { Empty, Loaded } from '../../ui/State'
import { FirstRun } from './FirstRun'

const WINDOWS: Record<string, number> = { '1m': 60, '5m': 300, '30m': 1800 }
const INCIDENTS_SHOWN = 5

/** What a broker does, now and over the last minutes. */
export function Overview() {
  const { broker, path } = useBroker()
  const { range = '5m' } = useSearch({ from: '/signed-in/b/$broker/' })
  const navigate = useNavigate({ from: '/b/$broker' })
  const live = useLiveMetrics(path)
  const seconds = WINDOWS[range] ?? 300
  return (
    <Page
      title={broker.display_name}
      lead={broker.name === broker.display_name ? undefined : <span className="mono">{broker.name}</span>}
      actions={
        <Button component={Link} to={`/b/${broker.name}/connect`} variant="default">
          Connect a device
        </Button>
      }
    >
      <Numbers live={live} />
      <FirstRun />
      <Panel
        title="Traffic"
        actions={
          <SegmentedControl
            aria-label="Time range"
            size="xs"
            data={[
              { value: '1m', label: '1 min' },
              { value: '5m', label: '5 min' },
              { value: '30m', label: '30 min' },
            ]}
            value={range in WINDOWS ? range : '5m'}
            onChange={(value) => void navigate({ search: { range: value }, replace: true })}
          />
        }
      >
        <Charts live={live} seconds={seconds} limits={broker.limits.broker} />
      </Panel>
      <LastIncidents />
    </Page>
  )
}

function latest(live: Live, counter: (sample: Live['samples'][number]) => number) {
  return rates(live.samples, counter).at(-1) ?? null
}

function Numbers({ live }: { live: Live }) {
  const last = live.samples.at(-1)
  const messagesIn = latest(live, (sample) => sample.messages_in)
  const messagesOut = latest(live, (sample) => sample.messages_out)
  return (
    <Stats>
      <Stat label="Connections" value={last ? count(last.connections) : '–'} note={trend(live)} />
      <Stat
        label="Published"
        value={messagesIn === null ? '–' : si(messagesIn)}
        unit="messages/s"
        note={last && `${si(last.messages_in)} since it was created`}
      />
      <Stat
        label="Delivered"
        value={messagesOut === null ? '–' : si(messagesOut)}
        unit="messages/s"
        note={last && `${si(last.messages_out)} since it was created`}
      />
      <Stat
        label="Dropped"
        value={last ? count(last.dropped) : '–'}
        unit="messages"
        note="since it was created"
      />
    </Stats>
  )
}

/** How connections have changed while the page was looking. */
function trend({ samples }: Live) {
  const first = samples[0]
  const last = samples.at(-1)
  if (!first || !last || samples.length < 3) return null
  const change = last.connections - first.connections
  if (change === 0) return 'steady'
  return `${change > 0 ? '↑' : '↓'} ${count(Math.abs(change))} while you look`
}

interface ChartsProps {
  live: Live
  seconds: number
  limits: { connections?: number | null; publishes_per_s?: number | null } | undefined
}

function Charts({ live, seconds, limits }: ChartsProps) {
  const now = (live.samples.at(-1)?.at_ms ?? Date.now()) / 1000
  const range: [number, number] = [now - seconds, now]
  const from = live.samples.findIndex((sample) => sample.at_ms / 1000 >= range[0])
  // A rate needs some samples before the first one that is seen.
  const samples = live.samples.slice(Math.max(0, from - 5))
  const times = samples.map((sample) => sample.at_ms / 1000)
  const rate = (counter: (sample: Live['samples'][number]) => number) => rates(samples, counter)
  const shared = { times, range }
  return (
    <div className={classes.grid}>
      <Chart
        {...shared}
        title="Connections"
        format={si}
        limit={limits?.connections}
        series={[
          { label: 'connections', values: samples.map(({ connections }) => connections), color: '--c1' },
        ]}
      />
      <Chart
        {...shared}
        title="Messages a second"
        format={si}
        limit={limits?.publishes_per_s}
        series={[
          { label: 'published', values: rate(({ messages_in }) => messages_in), color: '--c1' },
          {
            label: 'delivered',
            values: rate(({ messages_out }) => messages_out),
            color: '--c2',
            dash: [6, 3],
          },
        ]}
      />
      <Chart
        {...shared}
        title="Bytes a second"
        format={bytes}
        series={[
          { label: 'in', values: rate(({ bytes_in }) => bytes_in), color: '--c3' },
          { label: 'out', values: rate(({ bytes_out }) => bytes_out), color: '--c4', dash: [6, 3] },
        ]}
      />
      <Chart
        {...shared}
        title="Dropped messages a second"
        format={si}
        series={[{ label: 'dropped', values: rate(({ dropped }) => dropped), color: '--c5' }]}
      />
    </div>
  )
}

function LastIncidents() {
  const { broker, path } = useBroker()
  const query = useQuery(incidentsQuery(path, {}, INCIDENTS_SHOWN))
  return (
    <Panel
      isFlush
      title="Last incidents"
      lead="What was refused, dropped or limited."
      actions={
        <Anchor component={Link} to={`/b/${broker.name}/incidents`} size="sm">
          All incidents
        </Anchor>
      }
    >
      <Loaded query={query} height={120}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title="Nothing was refused or dropped">The last seven days are kept.</Empty>
          ) : (
            <IncidentTable broker={broker.name} rows={items.slice(0, INCIDENTS_SHOWN)} />
          )
        }
      </Loaded>
    </Panel>
  )
}
