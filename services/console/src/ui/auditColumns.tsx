import type { AuditEntry } from '../api/organisation'
import { actionText, targetText } from '../lib/actions'
import { Email } from './Email'
import type { Column } from './Rows'
import { Time } from './Time'

/** Columns of the audit log of an organisation or of the region. `names` has names for ids that the page knows. */
export const auditColumns = (names: Record<string, string> = {}): Column<AuditEntry>[] => [
  { key: 'at', header: 'When', width: '80px', cell: ({ at_ms }) => <Time at={at_ms} /> },
  {
    key: 'actor',
    header: 'Who',
    width: 'minmax(0, 1fr)',
    isWrapped: true,
    cell: ({ actor }) => <Email address={actor.name} />,
  },
  {
    key: 'action',
    header: 'Action',
    width: 'minmax(0, 1fr)',
    isWrapped: true,
    cell: ({ action }) => <span title={action}>{actionText(action)}</span>,
  },
  {
    key: 'target',
    header: 'Target',
    width: 'minmax(0, 1.5fr)',
    isExtra: true,
    cell: (entry) => (
      <span className="mono" title={entry.target}>
        {targetText(entry, names)}
      </span>
    ),
  },
  {
    key: 'address',
    header: 'Address',
    width: '120px',
    isExtra: true,
    cell: ({ actor }) => actor.address ?? '–',
  },
]
