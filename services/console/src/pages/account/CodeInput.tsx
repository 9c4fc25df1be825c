import { TextInput } from '@mantine/core'

interface CodeInputProps {
  value: string
  onChange: (code: string) => void
  error?: string
  /** A recovery code does as well. */
  takesRecovery?: boolean
  /** Instead of the usual description. */
  description?: string
}

/** A code of the authenticator app. */
export function CodeInput({ value, onChange, error, takesRecovery, description }: CodeInputProps) {
  return (
    <TextInput
      label="Code"
      description={
        description ??
        (takesRecovery
          ? 'The six digits of your authenticator app, or a recovery code'
          : 'The six digits that the app shows now')
      }
      inputMode={takesRecovery ? 'text' : 'numeric'}
      autoComplete="one-time-code"
      autoCapitalize="none"
      spellCheck={false}
      classNames={{ input: 'mono' }}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      error={error}
    />
  )
}
