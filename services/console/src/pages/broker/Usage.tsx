import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { useBroker } from '../../api/brokers'
import { spanOf, usageQuery } from '../../api/usage'
import { now } from '../../lib/clock'
import { count } from '../../lib/format'
import { beginOf } from '../../lib/history'
import { Cost } from '../../ui/Cost'
import { Page, Panel } from '../../ui/Page'
import { Facts } from '../../ui/Stat'
import { Loaded } from '../../ui/State'
import { Cap, UsageRange, UsedCharts, UsedNumbers } from '../../ui/UsageParts'

/** The broker's usage, and its estimated cost. */
export function Usage() {
  const { broker, path, can } = useBroker()
  const { range = '7d' } = useSearch({ from: '/signed-in/b/$broker/usage' })
  const navigate = useNavigate({ from: '/b/$broker/usage' })
  // The span ends when the page was opened: a moving end would ask for the usage again and again.
  const [at] = useState(now)
  const span = spanOf(range, at)
  const query = useQuery({ ...usageQuery(path, span), placeholderData: keepPreviousData })
  return (
    <Page
      title="Usage"
      lead="Pings, acknowledgements and refused packets are free. Hours are kept for 400 days."
      actions={
        <UsageRange
          of={`organisations/${path.organisation}/brokers/${path.broker}`}
          span={span}
          fileName={`usage-${path.broker}.csv`}
          value={range}
          onChange={(to) => void navigate({ search: { range: to }, replace: true })}
        />
      }
    >
      <Loaded query={query} height={960}>
        {({ total, windows, losses, currency }) => (
          <>
            <UsedNumbers used={total.used} />
            <Panel title={span.step === 'hour' ? 'By hour' : 'By day'}>
              <UsedCharts windows={windows} span={span} since={beginOf(broker.created_at_ms, windows)} />
            </Panel>
            <Cost total={total} currency={currency} />
            <Panel title="Losses" lead="Since the broker was created. Each has its reason under Incidents.">
              <Facts
                rows={[
                  ['Dropped for slow clients', `${count(losses.dropped_messages)} messages`],
                  ['Removed by queue limits', `${count(losses.trimmed_messages)} messages`],
                  ['Not delivered to sessions', `${count(losses.missed_messages)} messages`],
                ]}
              />
            </Panel>
          </>
        )}
      </Loaded>
      <Cap path={path} canWrite={can('brokers:write')} />
    </Page>
  )
}
