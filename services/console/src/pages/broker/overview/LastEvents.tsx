import { Anchor, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useBroker } from '../../../api/brokers'
import { type Incident, incidentsQuery } from '../../../api/live'
import { isPageIncident } from '../../../api/messages'
import { type AuditEntry, latestAuditQuery } from '../../../api/organisation'
import { actionText, targetText } from '../../../lib/actions'
import { count } from '../../../lib/format'
import { KINDS, reasonText } from '../../../lib/incidents'
import { ClientLink } from '../../../ui/ClientLink'
import { Panel } from '../../../ui/Page'
import { Empty, Loaded } from '../../../ui/State'
import { Time } from '../../../ui/Time'
import classes from './overview.module.css'

const EVENTS_SHOWN = 8
/** More than are shown, because incidents of the console's own pages are left out. */
const INCIDENTS_READ = 50
/** Each page of the console that connects makes a token, which is no change of the broker. */
const OWN_ACTION = 'connect_token.create'

type Event = { at: number } & ({ incident: Incident } | { change: AuditEntry })

function isOf(broker: string, { action, target, details }: AuditEntry) {
  if (action === OWN_ACTION) return false
  const of = (details as { broker?: unknown }).broker
  return of === broker || (target === broker && /^(broker|access|spend_cap)\./.test(action))
}

/** The broker's refusals, drops and changes of its settings, latest first. */
export function LastEvents() {
  const { broker, path } = useBroker()
  const incidents = useQuery(incidentsQuery(path, {}, INCIDENTS_READ))
  const changes = useQuery(latestAuditQuery(path.organisation))
  const found: Event[] = [
    ...(incidents.data?.items ?? [])
      .filter((one) => !isPageIncident(one))
      .map((incident) => ({ at: incident.last_at_ms, incident })),
    ...(changes.data?.items ?? [])
      .filter((entry) => isOf(broker.name, entry))
      .map((change) => ({ at: change.at_ms, change })),
  ]
  const events = found.toSorted((a, b) => b.at - a.at).slice(0, EVENTS_SHOWN)
  return (
    <Panel title="Last events" lead="Refused and dropped packets, and changes by people.">
      <Loaded query={incidents} height={160}>
        {() =>
          events.length === 0 ? (
            <Empty
              title="Nothing has happened yet"
              action={
                <Anchor component={Link} to={`/b/${broker.name}/connect`} size="sm">
                  Connect a device
                </Anchor>
              }
            >
              Refused packets, reached limits and changes of this broker are listed here.
            </Empty>
          ) : (
            <ol className={classes.events}>
              {events.map((event) => (
                <li key={'incident' in event ? `i${event.incident.id}` : `c${event.change.id} ${event.at}`}>
                  <Text span size="sm" c="dimmed" className={classes.when}>
                    <Time at={event.at} />
                  </Text>
                  {'incident' in event ? (
                    <OfIncident incident={event.incident} />
                  ) : (
                    <OfChange change={event.change} />
                  )}
                </li>
              ))}
            </ol>
          )
        }
      </Loaded>
    </Panel>
  )
}

function OfIncident({ incident: { kind, reason, client_id, count: times } }: { incident: Incident }) {
  const { broker } = useBroker()
  return (
    <>
      <span style={{ color: `var(${KINDS[kind].color})` }} aria-hidden>
        {KINDS[kind].mark}
      </span>
      <span className={classes.what}>
        {client_id && (
          <>
            <ClientLink broker={broker.name} id={client_id} />{' '}
          </>
        )}
        {reasonText(reason)}
        {times > 1 && (
          <Text span c="dimmed">
            {' '}
            ×{count(times)}
          </Text>
        )}
      </span>
    </>
  )
}

function OfChange({ change }: { change: AuditEntry }) {
  const { action, target, actor } = change
  const { broker } = useBroker()
  return (
    <>
      <span aria-hidden className={classes.change}>
        ●
      </span>
      <span className={classes.what}>
        {actionText(action)}
        {target !== broker.name && (
          <>
            {' '}
            <span className="mono">{targetText(change)}</span>
          </>
        )}
        <Text span c="dimmed">
          {' '}
          by {actor.name}
        </Text>
      </span>
    </>
  )
}
