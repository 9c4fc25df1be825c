import { Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { regionQuery } from '../../../api/region'
import { plural } from '../../../lib/format'
import { Term } from '../../../ui/Term'
import { Time } from '../../../ui/Time'

/** Below the times to PUBACK and delivery: when the server that answers started, and whether it had lost what it had acknowledged.
 * Only a server with a data folder of its own knows the latter. */
export function LastStart() {
  const { data: region } = useQuery(regionQuery)
  const lost = region?.acknowledged_commits_lost
  return (
    <Text size="sm" c="dimmed" component="div" mt="md" mih={22}>
      A <Term of="puback">PUBACK</Term> means that the message is stored.
      {region?.started_at_ms != null && (
        <>
          {' '}
          The server started <Time at={region.started_at_ms} />
          {lost != null && (
            <>
              , with{' '}
              <Term of="acknowledgedCommits">
                <b>{plural(lost, 'acknowledged commit')} lost</b>
              </Term>
            </>
          )}
          .
        </>
      )}
    </Text>
  )
}
