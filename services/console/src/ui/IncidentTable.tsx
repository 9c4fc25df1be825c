import { Badge, Text } from '@mantine/core'
import type { Incident } from '../api/live'
import { count } from '../lib/format'
import { KINDS, reasonSaid } from '../lib/incidents'
import { ClientLink } from './ClientLink'
import { type Column, Rows } from './Rows'
import { Time } from './Time'

/** Two lines of a reason. */
const ROW_PX = 56

const columnsOf = (broker: string): Column<Incident>[] => [
  { key: 'at', header: 'Last', width: '80px', cell: ({ last_at_ms }) => <Time at={last_at_ms} /> },
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
    cell: ({ reason, what }) => (
      <span title={what ? `${reason}: ${what}` : reason}>
        {reasonSaid(reason)}
        {what && (
          <Text span c="dimmed" className="mono" ml={8}>
            {what}
          </Text>
        )}
      </span>
    ),
  },
  {
    key: 'client',
    header: 'Client',
    width: 'minmax(0, 1fr)',
    cell: ({ client_id, user }) => {
      if (client_id) return <ClientLink broker={broker} id={client_id} />
      return (
        <Text span c="dimmed">
          {user ? `user ${user}` : 'several'}
        </Text>
      )
    },
  },
  { key: 'count', header: 'Count', width: '44px', isNumber: true, cell: (incident) => count(incident.count) },
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
  const columns = columnsOf(broker).filter(({ key }) => !(isOfOneClient && key === 'client'))
  return (
    <Rows
      label="Incidents"
      rows={rows}
      columns={columns}
      rowPx={ROW_PX}
      idOf={({ id }) => id}
      rowsShown={rowsShown}
    />
  )
}
