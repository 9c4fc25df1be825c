import { Alert, Button, Stack, Text } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import { useQueryClient } from '@tanstack/react-query'
import { type AccessSettings, giveOwnAccess } from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import type { Client } from '../../../api/live'
import { ownAccessLosses } from '../../../lib/ownAccess'
import { Confirm } from '../../../ui/Confirm'
import { Flag } from '../../../ui/Flag'
import { ConnectedClients } from '../../../ui/Losses'
import { saved } from '../../../ui/notify'

const isOfTheServer = ({ method }: Client) => method !== 'connect_token'

/** Before a save that ends the settings of the server for this broker: the question, or nothing once they are over. */
export function useOwnAccessQuestion(settings: AccessSettings = {}) {
  const { broker } = useBroker()
  return broker.access_by_settings
    ? {
        title: `Use credentials at ${broker.display_name}?`,
        loses: (
          <Stack gap="xs">
            <div>
              <ConnectedClients isOne={isOfTheServer} />: Not authorized.
            </div>
            {ownAccessLosses(settings).map((said) => (
              <div key={said}>{said}</div>
            ))}
          </Stack>
        ),
      }
    : undefined
}

/** Reads the broker again after a change of its access, because its record also says who may connect. */
export function useAccessChanged() {
  const { path } = useBroker()
  const client = useQueryClient()
  return () => {
    for (const queryKey of [['b', path.broker, 'access'], ['broker', path.broker], ['brokers']])
      void client.invalidateQueries({ queryKey })
  }
}

/** Says that the server refuses the credentials of this broker, and offers the way out. */
export function BySettings() {
  const { broker, path, can } = useBroker()
  const reload = useAccessChanged()
  const asks = useOwnAccessQuestion()
  if (!asks) return null
  const act = async () => {
    const { inForceMs, takesCredentials } = await giveOwnAccess(path)
    const said = takesCredentials
      ? 'Credentials are turned on.'
      : 'The broker has access settings of its own, but passwords are off: turn them on under Access, Authentication.'
    saved(said, inForceMs)
  }
  return (
    <Alert
      color="orange"
      variant="light"
      mb="md"
      icon={<IconAlertTriangle size={18} />}
      title={`${broker.display_name} does not use credentials yet`}
    >
      <Text size="sm">
        The settings of the server (<Flag>--allow-anonymous</Flag>, <Flag>--password-file</Flag>) decide who
        connects. Until you turn credentials on, the server refuses every password that you create here.
      </Text>
      {can('access:write') ? (
        <Confirm verb="Use credentials" title={asks.title} loses={asks.loses} act={act} onDone={reload}>
          {(open) => (
            <Button size="xs" variant="default" mt="xs" onClick={open}>
              Use credentials
            </Button>
          )}
        </Confirm>
      ) : (
        <Text size="sm">Ask an owner or an operator of the organisation to turn them on.</Text>
      )}
    </Alert>
  )
}
