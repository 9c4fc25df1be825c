import { TextInput } from '@mantine/core'

interface NameInputProps {
  value: string
  onChange: (name: string) => void
  error: string | undefined
  placeholder: string
}

/** The name of something new. It cannot be changed later. */
export function NameInput({ value, onChange, error, placeholder }: NameInputProps) {
  return (
    <TextInput
      label="Name"
      description="Letters, digits, - and _. It cannot be changed later."
      placeholder={placeholder}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      error={error}
      required
      withAsterisk={false}
      data-autofocus
    />
  )
}
