import { Text } from '@mantine/core'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useBroker } from '../../../api/brokers'
import type { Incident } from '../../../api/live'
import { type Span, usageQuery, type Window } from '../../../api/usage'
import { Chart } from '../../../charts/Chart'
import classes from '../../../charts/chart.module.css'
import { bytes, si } from '../../../lib/format'
import {
  averageConnections,
  beginOf,
  countsOf,
  edgesOf,
  INCIDENTS_KEPT_MS,
  shownRange,
  stepsOf,
} from '../../../lib/history'
import { KIND_NAMES, KINDS } from '../../../lib/incidents'
import { Loaded } from '../../../ui/State'
import { useNow } from '../../../ui/Time'
import type { ShownLimits } from './LiveCharts'

const CHARTS_PX = 400
const DASHES = [undefined, [6, 3], [2, 3], [8, 3, 2, 3], [12, 4]]

interface HistoryChartsProps {
  span: Span
  incidents: Incident[]
  limits: ShownLimits | undefined
}

/** Hours or days of the past, from what the server has metered. */
export function HistoryCharts({ span, incidents, limits }: HistoryChartsProps) {
  const { path } = useBroker()
  const query = useQuery({ ...usageQuery(path, span), placeholderData: keepPreviousData })
  return (
    <Loaded query={query} height={CHARTS_PX}>
      {({ windows }) => <Charts windows={windows} span={span} incidents={incidents} limits={limits} />}
    </Loaded>
  )
}

function Charts({ windows, span, incidents, limits }: HistoryChartsProps & { windows: Window[] }) {
  const { broker } = useBroker()
  const now = Math.floor(useNow() / 30_000) * 30_000
  const since = beginOf(broker.created_at_ms, windows)
  const times = edgesOf(windows, since, now)
  const range = shownRange(span, since, now)
  const every = span.step === 'hour' ? 'an hour' : 'a day'
  const shared = { times, range, isStepped: true, sync: 'history' }
  // Before that, nobody knows how many there were: a gap, and no zero.
  const incidentsSince = Math.max(since, now - INCIDENTS_KEPT_MS)
  const seen = KIND_NAMES.filter((kind) => incidents.some((one) => one.kind === kind))
  return (
    <>
      <div className={classes.grid}>
        <Chart
          {...shared}
          title="Connections, on average"
          format={si}
          limit={limits?.connections}
          series={[
            {
              label: 'connections',
              values: stepsOf(windows, since, (used, window) => averageConnections(used, window, since, now)),
              color: '--c1',
            },
          ]}
        />
        <Chart
          {...shared}
          title={`Messages ${every}`}
          format={si}
          series={[
            {
              label: 'published',
              values: stepsOf(windows, since, (used) => used.messages_in),
              color: '--c1',
            },
            {
              label: 'delivered',
              values: stepsOf(windows, since, (used) => used.messages_delivered),
              color: '--c2',
              dash: [6, 3],
            },
          ]}
        />
        <Chart
          {...shared}
          title={`Bytes ${every}`}
          format={bytes}
          series={[
            { label: 'in', values: stepsOf(windows, since, (used) => used.bytes_in), color: '--c3' },
            {
              label: 'out',
              values: stepsOf(windows, since, (used) => used.bytes_out),
              color: '--c4',
              dash: [6, 3],
            },
          ]}
        />
        <Chart
          {...shared}
          title={`Refused and dropped ${every}${span.from < now - INCIDENTS_KEPT_MS ? ', last 7 days' : ''}`}
          format={si}
          series={(seen.length > 0 ? seen : (['messages_dropped'] as const)).map((kind, at) => ({
            label: KINDS[kind].label.toLowerCase(),
            values: countsOf(
              incidents.filter((one) => one.kind === kind),
              times,
              incidentsSince,
            ),
            color: KINDS[kind].color,
            dash: DASHES[at],
          }))}
        />
      </div>
      <Text size="xs" c="dimmed" mt="sm">
        Messages are counted in units of 4 KiB, as usage is. Incidents are kept for seven days.
        {since > span.from && ' The charts begin with the broker.'}
      </Text>
    </>
  )
}
