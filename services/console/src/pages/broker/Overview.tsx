import { Button, SegmentedControl } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useMemo } from 'react'
import { useBroker } from '../../api/brokers'
import { incidentsQuery } from '../../api/live'
import { spanOf } from '../../api/usage'
import { type Live, useLiveMetrics } from '../../charts/metrics'
import { rates } from '../../charts/rates'
import { count, si } from '../../lib/format'
import { Page, Panel } from '../../ui/Page'
import { Stat, Stats } from '../../ui/Stat'
import { Loaded } from '../../ui/State'
import { useNow } from '../../ui/Time'
import ui from '../../ui/ui.module.css'
import { FirstRun } from './FirstRun'
import { HistoryCharts } from './overview/HistoryCharts'
import { LastEvents } from './overview/LastEvents'
import { LiveCharts } from './overview/LiveCharts'
import { Reasons } from './overview/Reasons'

interface Range {
  value: string
  label: string
  said: string
  seconds: number
  /** Seen second by second while the page is open; the others come from what was metered. */
  isLive: boolean
}

const RANGES: Range[] = [
  { value: '1m', label: '1 min', said: 'the last minute', seconds: 60, isLive: true },
  { value: '5m', label: '5 min', said: 'the last 5 minutes', seconds: 300, isLive: true },
  { value: '30m', label: '30 min', said: 'the last 30 minutes', seconds: 1800, isLive: true },
  { value: '24h', label: '24 h', said: 'the last 24 hours', seconds: 86_400, isLive: false },
  { value: '7d', label: '7 d', said: 'the last 7 days', seconds: 7 * 86_400, isLive: false },
  {
    value: '30d',
    label: '30 d',
    said: 'the last 7 days: incidents are kept no longer',
    seconds: 30 * 86_400,
    isLive: false,
  },
]
const [, FIVE_MINUTES] = RANGES
/** The API keeps as many. */
const INCIDENTS_MAX = 1000
const INCIDENTS_MS = 10_000
const HOUR_MS = 3_600_000

/** What a broker does now, and what it did over minutes, hours and days. */
export function Overview() {
  const { broker, path } = useBroker()
  const { range: asked } = useSearch({ from: '/signed-in/b/$broker/' })
  const navigate = useNavigate({ from: '/b/$broker' })
  const live = useLiveMetrics(path)
  const now = useNow()
  const range = RANGES.find(({ value }) => value === asked) ?? (FIVE_MINUTES as Range)
  const hour = Math.floor(now / HOUR_MS)
  const span = useMemo(() => spanOf(range.value, hour * HOUR_MS), [range.value, hour])
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
        {range.isLive ? (
          <LiveCharts live={live} seconds={range.seconds} limits={limits} />
        ) : (
          <HistoryCharts span={span} incidents={incidents.data?.items ?? []} limits={limits} />
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
