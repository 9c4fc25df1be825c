import { Anchor } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useMemo } from 'react'
import type { AuditSearch } from '../lib/auditFilter'
import { AuditFilters, NoEntryFits, useAuditFilter } from '../ui/AuditFilters'
import { AuditLog } from '../ui/AuditLog'
import { auditColumns } from '../ui/auditColumns'
import { Page } from '../ui/Page'
import { auditPage, tenantQuery } from './queries'

interface Asked extends AuditSearch {
  tenant?: string
  entry?: string
}

const NO_NAMES: Record<string, string> = {}

/** The audit log of the region, or that of the tenant that the address names. */
export function Audit() {
  const asked = useSearch({ strict: false }) as Asked
  const navigate = useNavigate()
  const { tenant } = asked
  const filter = useAuditFilter(asked)
  const { data } = useQuery({ ...tenantQuery(tenant ?? ''), enabled: tenant !== undefined })
  const names = useMemo(() => (data ? { [data.id]: data.name } : NO_NAMES), [data])
  const columns = useMemo(() => auditColumns(names), [names])
  const to = (search: Asked) =>
    void navigate({ to: '/audit' as string, search: search as never, replace: true, resetScroll: false })
  return (
    <Page
      title="Audit log"
      lead={
        tenant === undefined ? (
          'Changes by operators. Changes of a tenant are in the log of that tenant.'
        ) : (
          <Anchor component={Link} to={'/audit' as string} inherit>
            Show the log of the region
          </Anchor>
        )
      }
    >
      <AuditLog
        key={tenant}
        title={tenant === undefined ? 'Region' : `Tenant ${data?.name ?? tenant}`}
        lead={
          tenant === undefined
            ? 'Changes of plans and drains of pods, the latest first.'
            : 'Changes by members, API tokens and operators, the latest first.'
        }
        empty="Nothing was changed yet"
        filters={<AuditFilters asked={asked} set={(name, value) => to({ ...asked, [name]: value })} />}
        nothingFits={
          Object.keys(filter).length > 0 && (
            <NoEntryFits clear={() => to(tenant === undefined ? {} : { tenant })} />
          )
        }
        columns={columns}
        names={names}
        queryKey={['audit', tenant ?? null, filter]}
        page={(cursor, signal) => auditPage({ tenant, filter }, cursor, signal)}
        fileName={tenant === undefined ? 'region-audit.jsonl' : 'tenant-audit.jsonl'}
        chosen={asked.entry}
        onChoose={(entry) => {
          const { entry: _, ...rest } = asked
          to(entry === undefined ? rest : { ...rest, entry })
        }}
      />
    </Page>
  )
}
