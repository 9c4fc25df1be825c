import type { PasswordInputProps } from '@mantine/core'
import { PasswordInput } from '../../ui/PasswordInput'

interface Props extends Omit<PasswordInputProps, 'value' | 'onChange'> {
  value: string
  onChange: (password: string) => void
}

/** The password of the account, which confirms a change. */
export const CurrentPassword = ({ onChange, ...input }: Props) => (
  <PasswordInput
    label="Your password"
    autoComplete="current-password"
    onChange={(event) => onChange(event.currentTarget.value)}
    {...input}
  />
)
