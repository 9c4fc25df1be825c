import { PasswordInput as MantinePasswordInput, type PasswordInputProps } from '@mantine/core'

/** Mantine's own field does not announce an error to a screen reader, and its button is out of the keyboard's reach. */
export const PasswordInput = (props: PasswordInputProps) => (
  <MantinePasswordInput
    aria-invalid={props.error ? true : undefined}
    visibilityToggleFocusable
    visibilityToggleButtonProps={{ 'aria-label': `Show what is typed: ${props.label}` }}
    {...props}
  />
)
