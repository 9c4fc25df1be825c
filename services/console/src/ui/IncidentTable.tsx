import { Badge, Text } from '@mantine/core'
import { useMediaQuery } from '@mantine/hooks'
import type { Incident } from '../api/live'
import { count, legible } from '../lib/format'
import { KINDS, reasonText } from '../lib/incidents'
import { ClientLink } from './ClientLink'
import { type Column, Rows } from './Rows'
import { Time } from './Time'

/** A reason takes two lines. Where the table is narrow, it takes five with its client. */
const ROW_PX = 56
const NARROW_ROW_PX = 116
const NARROW = '(max-width: 700px)'

function Client({ broker, incident: { client_id, user } }: { broker: string; incident: Incident }) {
  if (client_id) return <ClientLink broker={broker} id={client_id} />
  return (
    <Text span c="dimmed">
      {user ? `user ${legible(user)}` : 'several'}
    </Text>
  )
}

/** `withReason`: the client stands before the reason, and has no column. */
const columnsOf = (broker: string, withReason: boolean): Column<Incident>[] => [
  {
    key: 'at',
    header: 'Last',
    width: '80px',
    cell: ({ last_at_ms }) => <Time at={last_at_ms} />,
  },
  {
    key: 'kind',
    header: 'Kind',
    width: '160px',
    isExtra: true,
    cell: ({ kind }) => (
      <Badge
        variant="default"
        tt="none"
        fw={500}
        leftSection={<span style={{ color: `var(${KINDS[kind].color})` }}>{KINDS[kind].mark}</span>}
      >
        {KINDS[kind].label}
      </Badge>
    ),
  },
  {
    key: 'reason',
    header: 'Reason',
    width: 'minmax(0, 2fr)',
    isWrapped: true,
    cell: (incident) => (
      <span title={incident.what ? `${incident.reason}: ${incident.what}` : incident.reason}>
        {withReason && (
          <>
            <Client broker={broker} incident={incident} />:{' '}
          </>
        )}
        {reasonText(incident.reason)}
        {incident.what && (
          <Text span c="dimmed" className="mono" ml={8}>
            {incident.what}
          </Text>
        )}
      </span>
    ),
  },
  {
    key: 'client',
    header: 'Client',
    width: 'minmax(0, 1fr)',
    cell: (incident) => <Client broker={broker} incident={incident} />,
  },
  {
    key: 'count',
    header: 'Count',
    width: '44px',
    narrowWidth: '36px',
    isNumber: true,
    cell: (incident) => count(incident.count),
  },
]

export function IncidentTable({
  broker,
  rows,
  rowsShown,
  isOfOneClient = false,
}: {
  broker: string
  rows: Incident[]
  rowsShown?: number
  isOfOneClient?: boolean
}) {
  const isNarrow = useMediaQuery(NARROW, undefined, { getInitialValueInEffect: false })
  const columns = columnsOf(broker, isNarrow && !isOfOneClient).filter(
    ({ key }) => key !== 'client' || !(isOfOneClient || isNarrow),
  )
  return (
    <Rows
      // The list measures its rows once.
      key={isNarrow ? 'narrow' : 'wide'}
      label="Incidents"
      rows={rows}
      columns={columns}
      rowPx={isNarrow ? NARROW_ROW_PX : ROW_PX}
      idOf={({ id }) => id}
      rowsShown={rowsShown}
    />
  )
}
