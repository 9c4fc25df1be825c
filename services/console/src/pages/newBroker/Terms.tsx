import { Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { charged, pricesQuery, UNITS } from '../../api/prices'
import { plansQuery, regionQuery } from '../../api/region'
import { money } from '../../lib/format'
import { limitsOf, planOf } from '../../lib/plan'
import { Panel } from '../../ui/Page'
import { Facts } from '../../ui/Stat'
import { Loaded } from '../../ui/State'
import ui from '../../ui/ui.module.css'

/** Where a new broker runs, and the limits and prices that hold for it. The operator decides these: nothing here is a choice. */
export function Terms({ organisation }: { organisation: string }) {
  const region = useQuery(regionQuery)
  const plans = useQuery(plansQuery)
  const prices = useQuery(pricesQuery)
  return (
    <Panel title="Region, plan and prices" lead="The operator of this server sets them.">
      <Loaded query={region} height={24}>
        {(found) => (
          <Loaded query={plans} height={48}>
            {(all) => {
              const plan = planOf(all, organisation)
              const others = all.filter(({ name }) => name !== plan?.name)
              const rows: [string, ReactNode][] = [
                ['Region', <Region key="region" region={found} />],
                ['Plan', plan ? <b key="plan">{plan.name}</b> : 'None. The limits of the server apply.'],
              ]
              if (others.length > 0) {
                const names = others.map(({ name }) => name).join(', ')
                rows.push(['Other plans', `${names}. The operator assigns a plan to your organisation.`])
              }
              return (
                <>
                  <Facts rows={rows} />
                  {plan && <Limits plan={plan} />}
                </>
              )
            }}
          </Loaded>
        )}
      </Loaded>
      <Loaded query={prices} height={24}>
        {(list) => <Prices list={list} />}
      </Loaded>
    </Panel>
  )
}

function Region({ region }: { region: { name: string; domain?: string | null } | null }) {
  if (!region) return 'unknown'
  return (
    <>
      <span className="mono">{region.name}</span>, the only one of this server
      {region.domain && (
        <>
          ; its brokers have host names below <span className="mono">{region.domain}</span>
        </>
      )}
    </>
  )
}

const SCOPES = { broker: 'All clients together, at most', client: 'Each client, at most' } as const

function Limits({ plan }: { plan: Parameters<typeof limitsOf>[0] }) {
  const scopes = (['broker', 'client'] as const).map((scope) => ({ scope, rows: limitsOf(plan, scope) }))
  const bounded = scopes.filter(({ rows }) => rows.length > 0)
  if (bounded.length === 0) {
    return (
      <Text size="sm" c="dimmed" mt="sm">
        The plan sets no limits, so the limits of the server apply.
      </Text>
    )
  }
  return (
    <div className={ui.two} style={{ marginTop: 16 }}>
      {bounded.map(({ scope, rows }) => (
        <div key={scope}>
          <Text fw={600} size="sm" mb={4}>
            {SCOPES[scope]}
          </Text>
          <Facts rows={rows} />
        </div>
      ))}
    </div>
  )
}

function Prices({ list }: { list: Parameters<typeof charged>[0] }) {
  const costly = charged(list)
  const currency = list.currency ? ` ${list.currency}` : ''
  if (costly.length === 0) {
    return (
      <Text size="sm" mt="md">
        This server is free of charge.
      </Text>
    )
  }
  return (
    <>
      <Text fw={600} size="sm" mt="md" mb={4}>
        Price per million
      </Text>
      <Facts
        rows={costly.map(({ unit, micros_per_million }) => [
          UNITS[unit] ?? unit,
          `${money(micros_per_million)}${currency}`,
        ])}
      />
    </>
  )
}
