import { TextInput } from '@mantine/core'
import type { Credential } from '../../../api/access'

/** Limits of a credential, as they stand in the fields. */
export interface TypedLimits {
  clientId: string
  /** The value of a datetime-local input, in the browser's time zone. */
  expires: string
}

export const LIMIT_FIELDS = ['client_id', 'expires_at_ms'] as const

export const NO_LIMITS: TypedLimits = { clientId: '', expires: '' }

export const limitsOf = (credential: Credential | undefined): TypedLimits => ({
  clientId: credential?.client_id ?? '',
  expires: credential?.expires_at_ms ? localTime(credential.expires_at_ms) : '',
})

export const hasLimits = ({ clientId, expires }: TypedLimits) => clientId !== '' || expires !== ''

/** The limits as the API takes them. `before` is the stored credential: an end that nobody has changed keeps its milliseconds, which the
 * field does not show. */
export function limitsSent(typed: TypedLimits, before?: Credential) {
  const { clientId, expires } = typed
  const isSame = expires === limitsOf(before).expires
  const ended = expires ? new Date(expires).getTime() : null
  return { client_id: clientId || null, expires_at_ms: isSame ? before?.expires_at_ms : ended }
}

/** The value of a datetime-local input, in the browser's time zone. */
function localTime(atMs: number) {
  const at = new Date(atMs)
  return new Date(atMs - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19)
}

interface CredentialLimitsProps {
  value: TypedLimits
  onChange: (to: TypedLimits) => void
  wrong: Record<string, string>
}

/** The client id that a credential is for, and its end. */
export const CredentialLimits = ({ value, onChange, wrong }: CredentialLimitsProps) => (
  <>
    <TextInput
      label="Client id"
      description="The only client id that may connect with this credential. Empty: any."
      placeholder="pump-7"
      classNames={{ input: 'mono' }}
      value={value.clientId}
      onChange={(event) => onChange({ ...value, clientId: event.currentTarget.value })}
      error={wrong.client_id}
    />
    <TextInput
      type="datetime-local"
      label="Expires"
      description="From then on the broker refuses this user. Empty: never."
      value={value.expires}
      onChange={(event) => onChange({ ...value, expires: event.currentTarget.value })}
      error={wrong.expires_at_ms}
    />
  </>
)
