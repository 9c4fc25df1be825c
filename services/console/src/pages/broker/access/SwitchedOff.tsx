import { Alert, Anchor } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { type AccessSettings, accessQuery } from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import ui from '../../../ui/ui.module.css'

/** Says that clients may not use a method, so that its records authenticate nobody. */
export function SwitchedOff({ what, isOff }: { what: string; isOff: (access: AccessSettings) => boolean }) {
  const { broker, path } = useBroker()
  const { data } = useQuery(accessQuery(path))
  if (!data || !isOff(data.value)) return null
  return (
    <Alert color="orange" variant="light" className={ui.inset} title={`This broker does not accept ${what}`}>
      Clients that use them are refused until you turn on {what} under{' '}
      <Anchor
        component={Link}
        to="/b/$broker/access"
        params={{ broker: broker.name } as never}
        search={{ tab: 'methods' } as never}
        inherit
      >
        Authentication
      </Anchor>
      .
    </Alert>
  )
}
