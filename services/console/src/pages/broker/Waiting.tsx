import { Anchor, Group, Loader, Text } from '@mantine/core'
import { IconAlertTriangle, IconCircleCheck } from '@tabler/icons-react'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { useBroker } from '../../api/brokers'
import { clientsWaitedFor, incidentsQuery } from '../../api/live'
import { isPageClient } from '../../api/messages'
import { Problem } from '../../api/problem'
import { now } from '../../lib/clock'
import { legible } from '../../lib/format'
import { reasonText } from '../../lib/incidents'
import { connectRefusalSince } from '../../lib/whyNot'
import { Panel } from '../../ui/Page'
import { Failure } from '../../ui/State'
import { Time } from '../../ui/Time'
import classes from './waiting.module.css'

const LOOK_MS = 1000
const INCIDENTS_LOOKED_AT = 20

function waitingText(devices: number, isCut: boolean, user: string | undefined) {
  if (isCut) {
    const own = user === undefined ? '' : `the clients of ${user} and `
    return `More clients are connected than this page looks at: ${own}the first ones by client id. The page Clients has all of them.`
  }
  return devices > 0
    ? 'Other devices are connected already. This page shows the next one.'
    : 'Run one of the snippets below. This page shows the connection within a second.'
}

/** Waits for the first device, and says that it is there, or why it was refused. */
export function Waiting({ clientId }: { clientId: string | undefined }) {
  const { broker, path } = useBroker()
  const [since] = useState(now)
  const clients = useQuery({
    queryKey: ['b', broker.name, 'clients', 'waiting', clientId],
    refetchInterval: LOOK_MS,
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) => clientsWaitedFor(path, clientId, signal),
  })
  const refusals = useQuery({
    ...incidentsQuery(path, { kind: 'connect_refused' }, INCIDENTS_LOOKED_AT),
    refetchInterval: LOOK_MS,
  })
  // The server records a CONNECT that a limit refuses only as an incident of the limit.
  const limits = useQuery({
    ...incidentsQuery(path, { kind: 'limit_reached' }, INCIDENTS_LOOKED_AT),
    refetchInterval: LOOK_MS,
  })
  const devices = (clients.data?.items ?? []).filter((one) => !isPageClient(one))
  const newest = devices.toSorted((a, b) => b.connected_at_ms - a.connected_at_ms)[0]
  const wanted = devices.find((one) => clientId !== undefined && one.user === clientId)
  const shown = wanted ?? (newest && newest.connected_at_ms >= since ? newest : undefined)
  const refusal = connectRefusalSince([...(refusals.data?.items ?? []), ...(limits.data?.items ?? [])], since)

  const isOffline = clients.failureReason instanceof Problem && clients.failureReason.isOffline

  if (clients.isError && !clients.data) {
    return (
      <div className={classes.place}>
        <Failure error={clients.error} retry={() => void clients.refetch()} />
      </div>
    )
  }
  return (
    <div className={classes.place}>
      <Panel>
        <Group gap="md" wrap="nowrap" className={classes.waiting} role="status">
          {shown && (
            <>
              <IconCircleCheck className={classes.good} size={24} />
              <div>
                <Text fw={600}>
                  <Anchor
                    component={Link}
                    to="/b/$broker/clients/$client"
                    params={{ broker: broker.name, client: shown.client_id } as never}
                    inherit
                  >
                    {legible(shown.client_id)}
                  </Anchor>{' '}
                  is connected
                </Text>
                <Text size="sm" c="dimmed">
                  {shown.address && `From ${shown.address}, `}MQTT {shown.protocol},{' '}
                  <Time at={shown.connected_at_ms} />.{' '}
                  <Anchor component={Link} to={`/b/${broker.name}/live`} inherit>
                    Watch its messages
                  </Anchor>
                </Text>
              </div>
            </>
          )}
          {!shown && refusal && (
            <>
              <IconAlertTriangle className={classes.bad} size={24} />
              <div>
                <Text fw={600}>
                  {refusal.client_id ? legible(refusal.client_id) : 'A client'} was refused
                </Text>
                <Text size="sm" c="dimmed">
                  {reasonText(refusal.reason)}, <Time at={refusal.last_at_ms} />. This page keeps waiting.{' '}
                  {refusal.client_id && (
                    <Anchor
                      component={Link}
                      to="/b/$broker/clients/$client"
                      params={{ broker: broker.name, client: refusal.client_id } as never}
                      inherit
                    >
                      See which check refused it
                    </Anchor>
                  )}
                </Text>
              </div>
            </>
          )}
          {!shown && !refusal && (
            <>
              <Loader type="dots" size="sm" />
              <div>
                <Text fw={600}>{isOffline ? 'The server does not answer' : 'Waiting for a device'}</Text>
                <Text size="sm" c="dimmed">
                  {isOffline
                    ? 'No device can connect now. This page waits again as soon as the server answers.'
                    : waitingText(devices.length, clients.data?.isCut ?? false, clientId)}
                </Text>
              </div>
            </>
          )}
        </Group>
      </Panel>
    </div>
  )
}
