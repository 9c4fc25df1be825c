import { TextInput, type TextInputProps } from '@mantine/core'
import { IconSearch } from '@tabler/icons-react'

/** The field of a list that `/` focuses. */
export function Search({
  label,
  onChange,
  ...field
}: Pick<TextInputProps, 'placeholder' | 'value' | 'error' | 'w' | 'mb'> & {
  label: string
  onChange: (text: string) => void
}) {
  return (
    <TextInput
      data-search
      aria-label={label}
      leftSection={<IconSearch size={16} />}
      w={{ base: '100%', xs: 300 }}
      onChange={(event) => onChange(event.currentTarget.value)}
      {...field}
    />
  )
}
