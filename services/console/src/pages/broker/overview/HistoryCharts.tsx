import { Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useBroker } from '../../../api/brokers'
import type { Schemas } from '../../../api/client'
import type { Incident } from '../../../api/live'
import { metricsHistoryQuery } from '../../../api/metricsHistory'
import { Chart } from '../../../charts/Chart'
import classes from '../../../charts/chart.module.css'
import { DROP_REASONS, DROPS } from '../../../lib/drops'
import { bytes, milliseconds, si } from '../../../lib/format'
import { countsOf, INCIDENTS_KEPT_MS, seriesOf, shownRange } from '../../../lib/history'
import { KIND_NAMES, KINDS } from '../../../lib/incidents'
import { Loaded } from '../../../ui/State'
import { useNow } from '../../../ui/Time'
import type { ShownLimits } from './LiveCharts'

/** Three rows of charts. */
const CHARTS_PX = 620
const DASHES = [undefined, [6, 3], [2, 3], [8, 3, 2, 3]]

const STEPS = {
  minute: 'a minute',
  ten_minutes: 'in 10 minutes',
  hour: 'an hour',
  day: 'a day',
}
type HistoryStep = keyof typeof STEPS

interface HistoryChartsProps {
  seconds: number
  step: HistoryStep
  incidents: Incident[]
  limits: ShownLimits | undefined
}

/** Hours or days of the past, from what the servers have stored each minute and each hour. */
export function HistoryCharts(props: HistoryChartsProps) {
  const { path } = useBroker()
  const query = useQuery(metricsHistoryQuery(path, props.seconds, props.step))
  return (
    <Loaded query={query} height={CHARTS_PX}>
      {(history) => <Charts {...props} history={history} />}
    </Loaded>
  )
}

interface ChartsProps extends HistoryChartsProps {
  history: Schemas['MetricsHistory']
}

function Charts({ history, seconds, step, incidents, limits }: ChartsProps) {
  const { broker } = useBroker()
  const now = Math.floor(useNow() / 30_000) * 30_000
  const asked = { from: now - seconds * 1000, to: now }
  const measured = history.points.find(({ values }) => values)
  // The broker of a server without accounts has no creation time (0).
  const since = broker.created_at_ms || (measured?.from_ms ?? 0)
  const { times, edges, of, perSecond } = seriesOf(history)
  const shared = { times, range: shownRange(asked, since, now), sync: 'history' }
  const kinds = KIND_NAMES.filter(
    (kind) => kind !== 'messages_dropped' && incidents.some((one) => one.kind === kind),
  )
  const reasons = DROP_REASONS.filter((reason) =>
    history.points.some(({ values }) => values && values.drops[reason] > 0),
  )
  // Before that, nobody knows how many there were: a gap, and no zero.
  const incidentsSince = Math.max(since, now - INCIDENTS_KEPT_MS)
  const refused = kinds.map((kind, at) => ({
    label: KINDS[kind].label.toLowerCase(),
    values: countsOf(
      incidents.filter((one) => one.kind === kind),
      edges,
      incidentsSince,
    ),
    color: KINDS[kind].color,
    dash: DASHES[at],
  }))
  const dropped = (reasons.length > 0 || refused.length > 0 ? reasons : DROP_REASONS.slice(0, 1)).map(
    (reason) => ({ ...DROPS[reason], values: of(({ drops }) => drops[reason]) }),
  )
  return (
    <>
      <div className={classes.grid}>
        <Chart
          {...shared}
          title="Connections, on average"
          format={si}
          limit={limits?.connections}
          series={[{ label: 'connections', values: of(({ connections }) => connections), color: '--c1' }]}
        />
        <Chart
          {...shared}
          title="Messages a second"
          format={si}
          limit={limits?.publishes_per_s}
          series={[
            { label: 'published', values: perSecond(({ messages_in }) => messages_in), color: '--c1' },
            {
              label: 'delivered',
              values: perSecond(({ messages_out }) => messages_out),
              color: '--c2',
              dash: [6, 3],
            },
          ]}
        />
        <Chart
          {...shared}
          title="Bytes a second"
          format={bytes}
          limit={limits?.publish_bytes_per_s}
          series={[
            { label: 'in', values: perSecond(({ bytes_in }) => bytes_in), color: '--c3' },
            { label: 'out', values: perSecond(({ bytes_out }) => bytes_out), color: '--c4', dash: [6, 3] },
          ]}
        />
        <Chart
          {...shared}
          title="Time to PUBACK"
          format={milliseconds}
          series={[
            { label: 'median', values: of(({ puback }) => puback?.p50_ms), color: '--c7' },
            { label: '99 %', values: of(({ puback }) => puback?.p99_ms), color: '--c2', dash: [6, 3] },
          ]}
        />
        <Chart
          {...shared}
          title="Time to delivery"
          format={milliseconds}
          series={[
            { label: 'median', values: of(({ delivery }) => delivery?.p50_ms), color: '--c7' },
            { label: '99 %', values: of(({ delivery }) => delivery?.p99_ms), color: '--c2', dash: [6, 3] },
          ]}
        />
        <Chart
          {...shared}
          title="Stored messages"
          format={si}
          series={[{ label: 'stored', values: of(({ stored_messages }) => stored_messages), color: '--c6' }]}
        />
        <Chart
          {...shared}
          title={`Refused and dropped ${STEPS[step]}`}
          format={si}
          series={[...refused, ...dropped]}
          isNamed={refused.length + reasons.length > 0}
        />
      </div>
      <Text size="xs" c="dimmed" mt="sm">
        {measured
          ? 'A gap means that no client was connected and nothing was published, or that no server was running.'
          : 'No data yet: the server stores each minute when the minute has ended.'}
        {seconds * 1000 > INCIDENTS_KEPT_MS && ' Refusals are kept for seven days.'}
        {since > asked.from && ' The charts begin with the broker.'}
      </Text>
    </>
  )
}
