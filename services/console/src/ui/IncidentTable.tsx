import { Badge, Text } from '@mantine/core'
import { useMediaQuery } from '@mantine/hooks'
import type { Incident } from '../api/live'
import { count } from '../lib/format'
import { KINDS, reasonSaid } from '../lib/incidents'
import { ClientLink } from './ClientLink'
import { type Column, Rows } from './Rows'
import { Time } from './Time'

/** A reason takes two lines, and three where the table is narrow. */
const ROW_PX = 56
const NARROW_ROW_PX = 76
const NARROW = '(max-width: 700px)'

const columnsOf = (broker: string): Column<Incident>[] => [
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
    narrowWidth: 'minmax(0, 0.8fr)',
    cell: ({ client_id, user }) => {
      if (client_id) return <ClientLink broker={broker} id={client_id} />
      return (
        <Text span c="dimmed">
          {user ? `user ${user}` : 'several'}
        </Text>
      )
    },
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
  const columns = columnsOf(broker).filter(({ key }) => !(isOfOneClient && key === 'client'))
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
