import { useNavigate, useSearch } from '@tanstack/react-router'
import { useMemo } from 'react'
import { useOrganisation } from '../../api/brokers'
import { auditPage } from '../../api/organisation'
import { AuditFilters, NoEntryFits, useAuditFilter } from '../../ui/AuditFilters'
import { AuditLog } from '../../ui/AuditLog'
import { auditColumns } from '../../ui/auditColumns'

/** Changes, who made them and from where. */
export function Audit() {
  const { id, name } = useOrganisation()
  const search = useSearch({ from: '/signed-in/org/$organisation' })
  const navigate = useNavigate({ from: '/org/$organisation' })
  const filter = useAuditFilter(search)
  const names = useMemo(() => ({ [id]: name }), [id, name])
  const columns = useMemo(() => auditColumns(names), [names])
  const clear = () =>
    void navigate({
      search: ({ actor: _, action: __, from: ___, to: ____, ...rest }) => rest,
      replace: true,
    })
  return (
    <AuditLog
      lead="Every change, the latest first."
      empty="Nothing was changed yet"
      filters={
        <AuditFilters
          asked={search}
          set={(name, value) =>
            void navigate({ search: (before) => ({ ...before, [name]: value }), replace: true })
          }
        />
      }
      nothingFits={Object.keys(filter).length > 0 && <NoEntryFits clear={clear} />}
      columns={columns}
      names={names}
      queryKey={['org', id, 'audit', filter]}
      page={(cursor, signal) => auditPage({ organisation: id, filter }, cursor, signal)}
      fileName="audit.jsonl"
      chosen={search.entry}
      onChoose={(entry) => void navigate({ search: (before) => ({ ...before, entry }), resetScroll: false })}
    />
  )
}
