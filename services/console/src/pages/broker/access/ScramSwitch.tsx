import { Switch } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { accessQuery } from '../../../api/access'
import { useBroker } from '../../../api/brokers'

interface ScramSwitchProps {
  value: boolean
  onChange: (value: boolean) => void
}

const MEANING =
  'MQTT 5.0 clients can prove the new password by SCRAM-SHA-256 without sending it. Sending it works too.'
const IS_OFF = ' This broker does not accept SCRAM now: turn it on under Authentication.'

/** Whether the server stores a SCRAM verifier of the next password. It cannot add one later, because it keeps no password. */
export function ScramSwitch({ value, onChange }: ScramSwitchProps) {
  const { path } = useBroker()
  const { data } = useQuery(accessQuery(path))
  return (
    <Switch
      label="SCRAM-SHA-256"
      description={MEANING + (data?.value.scram === false ? IS_OFF : '')}
      checked={value}
      onChange={(event) => onChange(event.currentTarget.checked)}
    />
  )
}
