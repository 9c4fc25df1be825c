import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { useBroker } from '../../../api/brokers'
import type { Schemas } from '../../../api/client'
import { type ConsolePages, useDevices } from '../../../api/live'
import { metricsHistoryQuery } from '../../../api/metricsHistory'
import type { Live } from '../../../charts/metrics'
import { rates } from '../../../charts/rates'
import { Sparkline } from '../../../charts/Sparkline'
import { DROP_REASONS } from '../../../lib/drops'
import { count, plural, si } from '../../../lib/format'
import { seriesOf } from '../../../lib/history'
import { trendOf } from '../../../lib/trend'
import { Stat, Stats } from '../../../ui/Stat'
import ui from '../../../ui/ui.module.css'
import type { Range } from './ranges'

/** The course of the headline numbers over a time range. */
interface Course {
  connections: (number | null)[]
  published: (number | null)[]
  stored: (number | null)[]
  dropped: (number | null)[]
}

const all = (drops: Schemas['Drops']) => DROP_REASONS.reduce((sum, reason) => sum + drops[reason], 0)
const sum = (values: (number | null)[]) => values.reduce<number>((total, value) => total + (value ?? 0), 0)

/** Growth of a counter between consecutive samples. */
const risesOf = (values: number[]) =>
  values.map((value, at) => (at === 0 ? null : Math.max(0, value - (values[at - 1] ?? value))))

function liveCourse({ samples }: Live, seconds: number): Course {
  const since = (samples.at(-1)?.at_ms ?? 0) - seconds * 1000
  const shown = samples.filter(({ at_ms }) => at_ms >= since)
  return {
    connections: shown.map(({ connections }) => connections),
    published: rates(shown, ({ messages_in }) => messages_in),
    stored: shown.map(({ stored_messages }) => stored_messages),
    dropped: risesOf(shown.map(({ drops }) => all(drops))),
  }
}

function historyCourse(history: Schemas['MetricsHistory']): Course {
  const { of, perSecond } = seriesOf(history)
  return {
    connections: of(({ connections }) => connections),
    published: perSecond(({ messages_in }) => messages_in),
    stored: of(({ stored_messages }) => stored_messages),
    dropped: of(({ drops }) => all(drops)),
  }
}

/** Four numbers: each as it is now, and its course over the chosen time range. */
export function Numbers({ live, range }: { live: Live; range: Range }) {
  const { path } = useBroker()
  const query = metricsHistoryQuery(path, range.seconds, range.step ?? 'minute')
  const { data } = useQuery({ ...query, enabled: range.step !== null })
  const course = range.step === null ? liveCourse(live, range.seconds) : data && historyCourse(data)
  const last = live.samples.at(-1)
  const { devices, pages } = useDevices(path, last?.connections, 'broker')
  const rate = rates(live.samples, ({ messages_in }) => messages_in).at(-1)
  const lost = course && last ? sum(course.dropped) : null
  const chart = (values: (number | null)[] | undefined, what: string) => (
    <Sparkline values={values ?? []} label={`${what} in ${range.said}`} />
  )
  return (
    <Stats>
      <Stat
        label="Connections"
        term="connections"
        value={
          <To page="clients" label={devices === null ? 'Connections' : plural(devices, 'connection')}>
            {devices === null ? '–' : count(devices)}
          </To>
        }
        note={
          (last && pagesText(last.connections, pages)) ??
          (course && trendOf(course.connections, (value) => si(Math.round(value))))
        }
        chart={chart(course?.connections, 'Connections')}
      />
      <Stat
        label="Published"
        term="published"
        value={
          <To page="live" label={`${rate == null ? '–' : si(rate)} messages a second published`}>
            {rate == null ? '–' : si(rate)}
          </To>
        }
        unit="messages/s"
        note={last && `${si(last.messages_in)} since the broker was created`}
        chart={chart(course?.published, 'Messages a second')}
      />
      <Stat
        label="Stored"
        term="backlog"
        value={
          <To page="sessions" label={`${last ? si(last.stored_messages) : '–'} stored messages`}>
            {last ? si(last.stored_messages) : '–'}
          </To>
        }
        unit={last?.stored_messages === 1 ? 'message' : 'messages'}
        note={course && trendOf(course.stored, (value) => si(Math.round(value)))}
        chart={chart(course?.stored, 'Stored messages')}
      />
      <Stat
        label="Dropped"
        term="dropped"
        value={
          <To page="incidents" label={`${lost === null ? '–' : si(lost)} messages dropped`}>
            {lost === null ? '–' : si(lost)}
          </To>
        }
        unit={lost === 1 ? 'message' : 'messages'}
        note={lost !== null && `in ${range.said}`}
        chart={chart(course?.dropped, 'Dropped messages')}
      />
    </Stats>
  )
}

/** "7 with 2 pages of this console". It takes the place of the trend, which counts the pages, too. */
function pagesText(connections: number, pages: ConsolePages | null) {
  if (!pages || pages.count === 0) return null
  return `${count(connections)} with ${plural(pages.count, 'page')}${pages.isMore ? ' or more' : ''} of this console`
}

/** A number that leads to the page with the things it counts. */
function To({
  page,
  label,
  children,
}: {
  page: 'clients' | 'live' | 'sessions' | 'incidents'
  /** For a reader of links, to whom a number alone says nothing. */
  label: string
  children: ReactNode
}) {
  const { broker } = useBroker()
  return (
    <Link
      to={`/b/$broker/${page}`}
      params={{ broker: broker.name }}
      className={ui.statLink}
      aria-label={label}
    >
      {children}
    </Link>
  )
}
