import type { PasswordInputProps } from '@mantine/core'
import { PasswordInput } from '../../ui/PasswordInput'

interface Props extends Omit<PasswordInputProps, 'value' | 'onChange'> {
  value: string
  onChange: (password: string) => void
  /** Names the change that this password confirms: a page may ask for it in several forms. */
  confirms: string
}

/** The password of the account, which confirms a change. */
export const CurrentPassword = ({ onChange, confirms, ...input }: Props) => (
  <PasswordInput
    label="Your password"
    autoComplete="current-password"
    visibilityToggleButtonProps={{ 'aria-label': `Show the password that confirms ${confirms}` }}
    onChange={(event) => onChange(event.currentTarget.value)}
    {...input}
  />
)
