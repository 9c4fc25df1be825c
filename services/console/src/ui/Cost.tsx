import { Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import type { Schemas } from '../api/client'
import { charged, costOf, pricesQuery, UNITS, type UnitPrice } from '../api/prices'
import { money } from '../lib/format'
import { Flag } from './Flag'
import { Panel } from './Page'
import { Facts } from './Stat'
import { Loaded } from './State'

type Props = Pick<Schemas['Usage'], 'total' | 'currency'>

/** The cost of a span as the server has summed it, which rounds as spend caps do, and the share of each unit. */
export function Cost({ total, currency }: Props) {
  const query = useQuery(pricesQuery)
  return (
    <Panel
      title="Cost"
      lead={`Cost of the time range above, at today's prices, in ${currency ?? 'the currency of the region'}.`}
    >
      <Loaded query={query} height={80}>
        {(prices) => {
          const costly = charged(prices)
          if (costly.length === 0) {
            return (
              <Text size="sm" c="dimmed">
                This server charges nothing. The operator sets prices with <Flag>--price</Flag>.
              </Text>
            )
          }
          const row = (price: UnitPrice): [string, string] => [
            UNITS[price.unit] ?? price.unit,
            `${money(costOf(total.used, price))} (${money(price.micros_per_million)} a million)`,
          ]
          const sum = <b key="total">{money(total.cost_micros)}</b>
          return <Facts rows={[['Total', sum], ...costly.map(row)]} />
        }}
      </Loaded>
    </Panel>
  )
}
