import { Anchor, Button, Group } from '@mantine/core'
import { IconDownload } from '@tabler/icons-react'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { useOrganisation } from '../../api/brokers'
import type { Schemas } from '../../api/client'
import { organisationUsageQuery, spanOf } from '../../api/usage'
import { bytes, si } from '../../lib/format'
import { saveCsv } from '../../lib/save'
import { Cost } from '../../ui/Cost'
import { failed } from '../../ui/notify'
import { Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Loaded } from '../../ui/State'
import { Cap, RangeSwitch, UsedCharts, UsedNumbers } from '../../ui/UsageParts'

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
  { key: 'in', header: 'In', width: '72px', isNumber: true, cell: ({ used }) => si(used.messages_in) },
  {
    key: 'out',
    header: 'Delivered',
    width: '80px',
    isNumber: true,
    cell: ({ used }) => si(used.messages_delivered),
  },
  {
    key: 'bytes',
    header: 'Bytes',
    width: '96px',
    isNumber: true,
    isExtra: true,
    cell: ({ used }) => bytes(used.bytes_in + used.bytes_out),
  },
  {
    key: 'minutes',
    header: 'Session minutes',
    width: '120px',
    isNumber: true,
    isExtra: true,
    cell: ({ used }) => si(used.connected_session_minutes),
  },
]

/** What all brokers have used. */
export function OrgUsage() {
  const { id, can } = useOrganisation()
  const { range = '7d' } = useSearch({ from: '/signed-in/org/$organisation' })
  const navigate = useNavigate({ from: '/org/$organisation' })
  const [now] = useState(Date.now)
  const span = spanOf(range, now)
  const query = useQuery({ ...organisationUsageQuery(id, span), placeholderData: keepPreviousData })
  const csv = `/api/v1/organisations/${id}/usage?${new URLSearchParams({
    from: String(span.from),
    to: String(span.to),
    step: span.step,
  })}`
  return (
    <>
      <Group justify="flex-end" mb="md" gap="xs">
        <RangeSwitch
          value={range}
          onChange={(to) => void navigate({ search: (before) => ({ ...before, range: to }), replace: true })}
        />
        <Button
          size="xs"
          variant="default"
          leftSection={<IconDownload size={14} />}
          onClick={() => void saveCsv(csv, 'usage.csv').catch(failed)}
        >
          CSV
        </Button>
      </Group>
      <Loaded query={query} height={480}>
        {({ total, windows, brokers }) => (
          <>
            <UsedNumbers used={total.used} />
            <Panel title={span.step === 'hour' ? 'By hour' : 'By day'}>
              <UsedCharts windows={windows} from={span.from} to={span.to} />
            </Panel>
            <Cost used={total.used} />
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
