import { useOrganisation } from '../../api/brokers'
import { type AuditEntry, auditPage } from '../../api/organisation'
import { actionSaid } from '../../lib/actions'
import { AuditLog } from '../../ui/AuditLog'
import type { Column } from '../../ui/Rows'
import { Time } from '../../ui/Time'

const columns: Column<AuditEntry>[] = [
  { key: 'at', header: 'When', width: '80px', cell: ({ at_ms }) => <Time at={at_ms} /> },
  {
    key: 'actor',
    header: 'Who',
    width: 'minmax(0, 1fr)',
    cell: ({ actor }) => <span title={actor.name}>{actor.name}</span>,
  },
  {
    key: 'action',
    header: 'Action',
    width: 'minmax(0, 1fr)',
    isWrapped: true,
    cell: ({ action }) => <span title={action}>{actionSaid(action)}</span>,
  },
  {
    key: 'target',
    header: 'Target',
    width: 'minmax(0, 1.5fr)',
    isExtra: true,
    cell: ({ target }) => <span className="mono">{target}</span>,
  },
  {
    key: 'address',
    header: 'Address',
    width: '120px',
    isExtra: true,
    cell: ({ actor }) => actor.address ?? '–',
  },
]

/** Changes, who made them and from where. */
export function Audit() {
  const { id } = useOrganisation()
  return (
    <AuditLog
      lead="Every change, the latest first."
      empty="Nothing was changed yet"
      columns={columns}
      queryKey={['org', id, 'audit']}
      page={(cursor, signal) => auditPage(id, cursor, signal)}
      fileName="audit.jsonl"
    />
  )
}
