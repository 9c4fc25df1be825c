import { Chart } from '../../../charts/Chart'
import classes from '../../../charts/chart.module.css'
import type { Live } from '../../../charts/metrics'
import { rates } from '../../../charts/rates'
import { DROP_REASONS, DROPS } from '../../../lib/drops'
import { bytes, milliseconds, si } from '../../../lib/format'

/** Limits that a chart of the broker shows as a line. */
export interface ShownLimits {
  connections?: number | null
  publishes_per_s?: number | null
  publish_bytes_per_s?: number | null
}

interface LiveChartsProps {
  live: Live
  seconds: number
  limits: ShownLimits | undefined
}

const SECONDS_MIN = 60

/** The last minutes, second by second, as far as the page has seen them. */
export function LiveCharts({ live, seconds, limits }: LiveChartsProps) {
  const now = (live.samples.at(-1)?.at_ms ?? Date.now()) / 1000
  // At least a minute, but not more than the page has seen: a chart of five minutes would start almost empty.
  const seenS = now - (live.samples[0]?.at_ms ?? 0) / 1000
  const range: [number, number] = [now - Math.min(seconds, Math.max(seenS, SECONDS_MIN)), now]
  const from = live.samples.findIndex((sample) => sample.at_ms / 1000 >= range[0])
  // A rate needs some samples before the first one that is seen.
  const samples = live.samples.slice(Math.max(0, from - 5))
  const times = samples.map((sample) => sample.at_ms / 1000)
  const rate = (counter: (sample: Live['samples'][number]) => number) => rates(samples, counter)
  const shared = { times, range }
  const [first, last] = [samples[0], samples.at(-1)]
  const reasons = DROP_REASONS.filter((reason) => first && last && last.drops[reason] !== first.drops[reason])
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
        limit={limits?.publish_bytes_per_s}
        series={[
          { label: 'in', values: rate(({ bytes_in }) => bytes_in), color: '--c3' },
          { label: 'out', values: rate(({ bytes_out }) => bytes_out), color: '--c4', dash: [6, 3] },
        ]}
      />
      <Chart
        {...shared}
        title="Time to PUBACK, last 2 minutes"
        format={milliseconds}
        series={[
          { label: 'median', values: samples.map(({ puback }) => puback?.p50_ms ?? null), color: '--c7' },
          {
            label: '99 %',
            values: samples.map(({ puback }) => puback?.p99_ms ?? null),
            color: '--c2',
            dash: [6, 3],
          },
        ]}
      />
      <Chart
        {...shared}
        title="Time to delivery, last 2 minutes"
        format={milliseconds}
        series={[
          {
            label: 'median',
            values: samples.map(({ delivery }) => delivery?.p50_ms ?? null),
            color: '--c7',
          },
          {
            label: '99 %',
            values: samples.map(({ delivery }) => delivery?.p99_ms ?? null),
            color: '--c2',
            dash: [6, 3],
          },
        ]}
      />
      <Chart
        {...shared}
        title="Stored messages"
        format={si}
        series={[
          { label: 'stored', values: samples.map(({ stored_messages }) => stored_messages), color: '--c6' },
        ]}
      />
      <Chart
        {...shared}
        title="Dropped messages a second"
        format={si}
        series={(reasons.length > 0 ? reasons : DROP_REASONS.slice(0, 1)).map((reason) => ({
          ...DROPS[reason],
          values: rate(({ drops }) => drops[reason]),
        }))}
        isNamed={reasons.length > 0}
      />
    </div>
  )
}
