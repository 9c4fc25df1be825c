import { Alert, Button, Text } from '@mantine/core'
import { IconAlertTriangle } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useBroker } from '../../../api/brokers'
import { bySettingsQuery, giveOwnAccess } from '../../../api/waysIn'
import { Confirm } from '../../../ui/Confirm'
import { saved } from '../../../ui/notify'

/** Says that the server refuses the credentials of this broker, and offers the way out. */
export function BySettings() {
  const { broker, path, can } = useBroker()
  const client = useQueryClient()
  const { data: isBySettings } = useQuery(bySettingsQuery(path))
  if (!isBySettings) return null
  const act = async () => saved('Credentials are in use.', (await giveOwnAccess(path)).inForceMs)
  return (
    <Alert
      color="orange"
      variant="light"
      mb="md"
      icon={<IconAlertTriangle size={18} />}
      title={`${broker.display_name} does not use credentials yet`}
    >
      <Text size="sm">
        The settings of the server (<span className="mono">--allow-anonymous</span>,{' '}
        <span className="mono">--password-file</span>) decide who connects. Until you turn credentials on, the
        server refuses every password that you create here.
      </Text>
      {can('access:write') ? (
        <Confirm
          verb="Use credentials"
          title={`Use credentials at ${broker.display_name}?`}
          loses="From then on the server refuses clients without a credential, and users of its password file. Under Authentication you can admit anonymous clients again. The broker does not go back to the settings of the server."
          act={act}
          onDone={() => void client.invalidateQueries({ queryKey: ['b', path.broker, 'access'] })}
        >
          {(open) => (
            <Button size="xs" variant="default" mt="xs" onClick={open}>
              Use credentials
            </Button>
          )}
        </Confirm>
      ) : (
        <Text size="sm">Ask an owner of the organisation to turn them on.</Text>
      )}
    </Alert>
  )
}
