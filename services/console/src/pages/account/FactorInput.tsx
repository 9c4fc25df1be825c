import { useQuery } from '@tanstack/react-query'
import { secondFactorQuery } from '../../api/account'
import { canUsePasskeys } from '../../api/passkeys'
import { waysQuery } from '../../api/session'
import { CodeInput } from './CodeInput'

/** The account's second factors, which confirm a change beside the password. */
export function useFactor() {
  const { data: factor } = useQuery(secondFactorQuery)
  const { data: ways } = useQuery(waysQuery)
  const isNeeded = factor?.enabled ?? false
  const hasPasskey = (factor?.passkeys ?? 0) > 0 && canUsePasskeys(ways?.passkey_origin)
  const isReady = (code: string) => !isNeeded || hasPasskey || code !== ''
  return { isNeeded, hasPasskey, hasApp: factor?.app_enabled_at != null, isReady }
}

interface FactorInputProps {
  value: string
  onChange: (code: string) => void
  /** The server's errors by field. */
  wrong: Record<string, string>
}

/** A code, or nothing where a passkey answers instead. Hidden for an account without a second factor. */
export function FactorInput({ value, onChange, wrong }: FactorInputProps) {
  const { isNeeded, hasPasskey, hasApp } = useFactor()
  const error = wrong.code ?? wrong.passkey
  if (!isNeeded && !error) return null
  const codes = hasApp ? 'the six digits of your authenticator app, or a recovery code' : 'a recovery code'
  const description = hasPasskey
    ? `Leave it empty to confirm with your passkey. Otherwise: ${codes}`
    : codes.charAt(0).toUpperCase() + codes.slice(1)
  return <CodeInput value={value} onChange={onChange} error={error} takesRecovery description={description} />
}
