import { Alert, Anchor, Button } from '@mantine/core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, Outlet, useParams } from '@tanstack/react-router'
import { useEffect } from 'react'
import { brokerQuery, brokersQuery } from '../../api/brokers'
import { isMissing } from '../../api/problem'
import { Page, TitleScope } from '../../ui/Page'
import { Empty, Loaded } from '../../ui/State'
import classes from './frame.module.css'

/**
 * Around each page of a broker: loads the broker, and says what stops it (suspended, spend cap, deleted). `key` makes the page
 * anew for another broker, so that no state of the former one stays.
 */
export function BrokerFrame() {
  const { broker } = useParams({ from: '/signed-in/b/$broker' })
  const query = useQuery(brokerQuery(broker))
  if (query.data && isMissing(query.error)) return <Gone name={query.data.display_name} />
  return (
    <Loaded query={query} height={600}>
      {(shown) => (
        <TitleScope value={shown.display_name}>
          {shown.suspended && (
            <Alert color="orange" className={classes.banner} title="This broker is suspended">
              No client may connect. Its sessions and messages stay.{' '}
              <Anchor component={Link} to={`/b/${broker}/settings`} inherit>
                Resume it in the settings
              </Anchor>
            </Alert>
          )}
          {shown.is_over_cap && (
            <Alert color="red" className={classes.banner} title="The spend cap is reached">
              No client may connect or publish until the cap is raised or the month ends.{' '}
              <Anchor component={Link} to={`/b/${broker}/usage`} inherit>
                Look at the usage
              </Anchor>
            </Alert>
          )}
          <Outlet key={broker} />
        </TitleScope>
      )}
    </Loaded>
  )
}

function Gone({ name }: { name: string }) {
  const client = useQueryClient()
  // The list may be younger than this answer, and still name the broker.
  useEffect(() => void client.invalidateQueries({ queryKey: brokersQuery.queryKey }), [client])
  return (
    <Page title={name}>
      <Empty
        title="This broker is gone"
        action={
          <Button component={Link} to="/" search={{ all: true } as never} variant="default">
            Go to your brokers
          </Button>
        }
      >
        It was deleted while this page was open, or you may not see it any more. The audit log of the
        organisation says who did what.
      </Empty>
    </Page>
  )
}
