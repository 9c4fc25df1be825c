import { Alert, Anchor } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { type AccessSettings, accessQuery } from '../../../api/access'
import { useBroker } from '../../../api/brokers'

/** Says that clients may not use a method, so that its records let nobody in. */
export function SwitchedOff({ what, isOff }: { what: string; isOff: (access: AccessSettings) => boolean }) {
  const { broker, path } = useBroker()
  const { data } = useQuery(accessQuery(path))
  if (!data || !isOff(data.value)) return null
  return (
    <Alert color="orange" variant="light" mx="md" mb="md" title={`This broker takes no ${what} now`}>
      These let nobody in until {what} are switched on under{' '}
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
