import { Button } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useBroker } from '../../api/brokers'
import { incidentsQuery } from '../../api/live'
import { limitsShown } from '../../charts/axis'
import { useLiveMetrics } from '../../charts/metrics'
import { INCIDENTS_KEPT_MS } from '../../lib/history'
import { Choice } from '../../ui/Choice'
import { Page, Panel } from '../../ui/Page'
import { Loaded } from '../../ui/State'
import { useNow } from '../../ui/Time'
import ui from '../../ui/ui.module.css'
import { FirstRun } from './FirstRun'
import { HistoryCharts } from './overview/HistoryCharts'
import { LastEvents } from './overview/LastEvents'
import { LastStart } from './overview/LastStart'
import { LiveCharts } from './overview/LiveCharts'
import { Numbers } from './overview/Numbers'
import { Reasons } from './overview/Reasons'
import { LIVE, RANGES, type Range } from './overview/ranges'

/** The API stores this many incidents of a broker at most. */
const INCIDENTS_MAX = 1000
const INCIDENTS_MS = 10_000

/** A broker's activity now, and over minutes, hours and days. */
export function Overview() {
  const { broker, path } = useBroker()
  const { range: asked } = useSearch({ from: '/signed-in/b/$broker/' })
  const navigate = useNavigate({ from: '/b/$broker' })
  const live = useLiveMetrics(path)
  const now = useNow()
  const range = RANGES.find(({ value }) => value === asked) ?? LIVE
  const incidents = useQuery({ ...incidentsQuery(path, {}, INCIDENTS_MAX), refetchInterval: INCIDENTS_MS })
  const limits = limitsShown(broker.limits.broker, broker.ceiling?.broker)
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
      <Numbers live={live} range={range} />
      <FirstRun />
      <Panel
        title="Traffic"
        lead={
          live.refusal && (
            <span role="status">No live numbers: {live.refusal.message} The page tries again by itself.</span>
          )
        }
        actions={
          <Choice
            label="Time range"
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
        <LastStart />
      </Panel>
      <div className={`${ui.two} ${ui.twoBottom}`}>
        <Loaded query={incidents} height={200}>
          {({ items }) => (
            <Reasons incidents={items} sinceMs={now - range.seconds * 1000} span={spanText(range)} />
          )}
        </Loaded>
        <LastEvents />
      </div>
    </Page>
  )
}

/** The time that the incidents of a range cover. */
const spanText = ({ seconds, said }: Range) =>
  seconds * 1000 > INCIDENTS_KEPT_MS ? 'the last 7 days: incidents are kept no longer' : said
