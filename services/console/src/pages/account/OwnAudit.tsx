import { useNavigate, useSearch } from '@tanstack/react-router'
import { ownAuditPage } from '../../api/account'
import type { AuditEntry } from '../../api/organisation'
import { actionText } from '../../lib/actions'
import { browserName } from '../../lib/browsers'
import { AuditLog } from '../../ui/AuditLog'
import type { Column } from '../../ui/Rows'
import { Time } from '../../ui/Time'

const columns: Column<AuditEntry>[] = [
  { key: 'at', header: 'When', width: '80px', cell: ({ at_ms }) => <Time at={at_ms} /> },
  {
    key: 'action',
    header: 'Action',
    width: 'minmax(0, 1.5fr)',
    isWrapped: true,
    cell: ({ action }) => <span title={action}>{actionText(action)}</span>,
  },
  {
    key: 'program',
    header: 'Program',
    width: 'minmax(0, 1fr)',
    isExtra: true,
    cell: ({ actor: { agent } }) => (agent ? <span title={agent}>{browserName(agent)}</span> : '–'),
  },
  {
    key: 'address',
    header: 'Address',
    width: '120px',
    cell: ({ actor }) => actor.address ?? '–',
  },
]

/** Audit log of the signed-in person's account. */
export function OwnAudit() {
  const { entry } = useSearch({ from: '/signed-in/me' })
  const navigate = useNavigate({ from: '/me' })
  return (
    <AuditLog
      lead="Sign-ins, refused sign-ins, and changes of your account, the latest first. Your organisations see the same entries."
      empty="Nothing was done with your account yet"
      columns={columns}
      queryKey={['me', 'audit']}
      page={ownAuditPage}
      fileName="my-audit.jsonl"
      rowsShown={6}
      chosen={entry}
      onChoose={(entry) => void navigate({ search: (before) => ({ ...before, entry }), resetScroll: false })}
    />
  )
}
