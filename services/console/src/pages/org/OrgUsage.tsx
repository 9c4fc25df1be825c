import { Anchor, Group } from '@mantine/core'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { useOrganisation } from '../../api/brokers'
import type { Schemas } from '../../api/client'
import { organisationUsageQuery, spanOf } from '../../api/usage'
import { now } from '../../lib/clock'
import { beginOf } from '../../lib/history'
import { Cost } from '../../ui/Cost'
import { Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Loaded } from '../../ui/State'
import { Cap, UsageRange, UsedCharts, UsedNumbers } from '../../ui/UsageParts'
import ui from '../../ui/ui.module.css'
import { usedColumns } from '../../ui/usedColumns'

type Row = Schemas['BrokerUsage']

const columns: Column<Row>[] = [
  {
    key: 'broker',
    header: 'Broker',
    width: 'minmax(0, 2fr)',
    cell: ({ name, display_name }) => (
      <Anchor component={Link} to="/b/$broker/usage" params={{ broker: name } as never}>
        {display_name}
      </Anchor>
    ),
  },
  ...usedColumns,
]

/** Usage of all brokers. */
export function OrgUsage() {
  const { id, can } = useOrganisation()
  const { range = '7d' } = useSearch({ from: '/signed-in/org/$organisation' })
  const navigate = useNavigate({ from: '/org/$organisation' })
  const [at] = useState(now)
  const span = spanOf(range, at)
  const query = useQuery({ ...organisationUsageQuery(id, span), placeholderData: keepPreviousData })
  return (
    <>
      <Group className={ui.toEnd} mb="md" gap="xs">
        <UsageRange
          of={`organisations/${id}`}
          span={span}
          fileName="usage.csv"
          value={range}
          onChange={(to) => void navigate({ search: (before) => ({ ...before, range: to }), replace: true })}
        />
      </Group>
      <Loaded query={query} height={960}>
        {({ total, windows, brokers, currency }) => (
          <>
            <UsedNumbers used={total.used} />
            <Panel title={span.step === 'hour' ? 'By hour' : 'By day'}>
              <UsedCharts windows={windows} span={span} since={beginOf(0, windows)} />
            </Panel>
            <Cost total={total} currency={currency} />
            <Panel isFlush title="By broker">
              <Rows label="Usage by broker" rows={brokers} columns={columns} idOf={({ name }) => name} />
            </Panel>
          </>
        )}
      </Loaded>
      <Cap path={{ organisation: id }} canWrite={can('organisation:write')} />
    </>
  )
}
