import { Anchor, Text } from '@mantine/core'
import { Link } from '@tanstack/react-router'
import { useBroker } from '../../../api/brokers'
import type { Incident } from '../../../api/live'
import { count } from '../../../lib/format'
import { reasonsOf } from '../../../lib/history'
import { KINDS, reasonText } from '../../../lib/incidents'
import { Panel } from '../../../ui/Page'
import { Empty } from '../../../ui/State'
import classes from './overview.module.css'

const REASONS_SHOWN = 6

interface ReasonsProps {
  incidents: Incident[]
  sinceMs: number
  /** Such as "the last 5 minutes". */
  span: string
}

/** Refusals, drops and reached limits by reason. */
export function Reasons({ incidents, sinceMs, span }: ReasonsProps) {
  const { broker } = useBroker()
  const reasons = reasonsOf(incidents, sinceMs)
  const most = reasons[0]?.count ?? 1
  const rest = reasons.slice(REASONS_SHOWN).reduce((sum, one) => sum + one.count, 0)
  return (
    <Panel
      title="Refused and dropped, by reason"
      lead={`In ${span}.`}
      actions={
        <Anchor component={Link} to={`/b/${broker.name}/incidents`} size="sm">
          All incidents
        </Anchor>
      }
    >
      {reasons.length === 0 ? (
        <Empty
          title="Nothing was refused or dropped"
          action={
            <Anchor component={Link} to={`/b/${broker.name}/settings`} size="sm">
              See the limits of this broker
            </Anchor>
          }
        >
          A refused client or a reached limit is counted here within ten seconds.
        </Empty>
      ) : (
        <ul className={classes.reasons}>
          {reasons.slice(0, REASONS_SHOWN).map(({ kind, reason, count: times }) => (
            <li key={`${kind} ${reason}`}>
              <Link to="/b/$broker/incidents" params={{ broker: broker.name }} search={{ kind }}>
                <span className={classes.mark} style={{ color: `var(${KINDS[kind].color})` }} aria-hidden>
                  {KINDS[kind].mark}
                </span>
                <span className={classes.reason}>
                  {KINDS[kind].label}: {reasonText(reason)}
                </span>
                <b>{count(times)}</b>
              </Link>
              <div className={classes.bar} aria-hidden>
                <i style={{ width: `${(times / most) * 100}%`, background: `var(${KINDS[kind].color})` }} />
              </div>
            </li>
          ))}
        </ul>
      )}
      {rest > 0 && (
        <Text size="xs" c="dimmed" mt="sm">
          {count(rest)} more for other reasons.
        </Text>
      )}
    </Panel>
  )
}
