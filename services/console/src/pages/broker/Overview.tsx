import { Button, SegmentedControl } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useBroker } from '../../api/brokers'
import { incidentsQuery } from '../../api/live'
import { type Live, useLiveMetrics } from '../../charts/metrics'
import { rates } from '../../charts/rates'
import { count, si } from '../../lib/format'
import { Page, Panel } from '../../ui/Page'
import { Stat, Stats } from '../../ui/Stat'
import { Loaded } from '../../ui/State'
import { useNow } from '../../ui/Time'
import ui from '../../ui/ui.module.css'
import { FirstRun } from './FirstRun'
import { HistoryCharts, type HistoryStep } from './overview/HistoryCharts'
import { LastEvents } from './overview/LastEvents'
import { LiveCharts } from './overview/LiveCharts'
import { Reasons } from './overview/Reasons'

interface Range {
  value: string
  label: string
  said: string
  seconds: number
  /** Of the stored history. Null: seen second by second while the page is open. */
  step: HistoryStep | null
}

const RANGES: Range[] = [
  { value: '1m', label: '1 min', said: 'the last minute', seconds: 60, step: null },
  { value: '5m', label: '5 min', said: 'the last 5 minutes', seconds: 300, step: null },
  { value: '1h', label: '1 h', said: 'the last hour', seconds: 3600, step: 'minute' },
  { value: '24h', label: '24 h', said: 'the last 24 hours', seconds: 86_400, step: 'ten_minutes' },
  { value: '7d', label: '7 d', said: 'the last 7 days', seconds: 7 * 86_400, step: 'hour' },
  {
    value: '30d',
    label: '30 d',
    said: 'the last 7 days: incidents are kept no longer',
    seconds: 30 * 86_400,
    step: 'hour',
  },
]
const [, FIVE_MINUTES] = RANGES
/** The API keeps as many. */
const INCIDENTS_MAX = 1000
const INCIDENTS_MS = 10_000

/** What a broker does now, and what it did over minutes, hours and days. */
export function Overview() {
  const { broker, path } = useBroker()
  const { range: asked } = useSearch({ from: '/signed-in/b/$broker/' })
  const navigate = useNavigate({ from: '/b/$broker' })
  const live = useLiveMetrics(path)
  const now = useNow()
  const range = RANGES.find(({ value }) => value === asked) ?? (FIVE_MINUTES as Range)
  const incidents = useQuery({ ...incidentsQuery(path, {}, INCIDENTS_MAX), refetchInterval: INCIDENTS_MS })
  const limits = broker.limits.broker
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
            data={RANGES}
            value={range.value}
            onChange={(value) => void navigate({ search: { range: value }, replace: true })}
          />
        }
      >
        {range.step ? (
          <HistoryCharts
            seconds={range.seconds}
            step={range.step}
            incidents={incidents.data?.items ?? []}
            limits={limits}
          />
        ) : (
          <LiveCharts live={live} seconds={range.seconds} limits={limits} />
        )}
      </Panel>
      <div className={`${ui.two} ${ui.twoBottom}`}>
        <Loaded query={incidents} height={200}>
          {({ items }) => <Reasons incidents={items} since={now - range.seconds * 1000} span={range.said} />}
        </Loaded>
        <LastEvents />
      </div>
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
