import { Anchor } from '@mantine/core'
import { Link } from '@tanstack/react-router'
import { useBroker } from '../../../api/brokers'
import { storing } from '../../../lib/storing'

/** A filter, and the webhook that it belongs to if no session has it. */
export function StoredFor({ filter }: { filter: string }) {
  const { broker } = useBroker()
  const { filter: own, webhook } = storing(filter)
  return (
    <span>
      {webhook && (
        <>
          webhook{' '}
          <Anchor component={Link} to={`/b/${broker.name}/webhooks`} search={{ webhook } as never} inherit>
            {webhook}
          </Anchor>
          :{' '}
        </>
      )}
      <span className="mono">{own}</span>
    </span>
  )
}
