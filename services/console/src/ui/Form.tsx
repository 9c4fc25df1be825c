import { Button, Group, Stack } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { Problem } from '../api/problem'
import { Confirm } from './Confirm'
import { Failure } from './State'

interface FormProps<T> {
  /** Such as "Save rules". */
  verb: string
  act: () => Promise<T>
  onDone?: (result: T) => void
  onCancel?: () => void
  isDisabled?: boolean
  /** Red where something is lost. */
  color?: string
  /** Another form beside this one is the main one. */
  isSecondary?: boolean
  /** Asks before something is lost. */
  asks?: { title: string; loses: ReactNode }
  /** The fields, with what the server found wrong in them. */
  children: (wrong: Record<string, string>) => ReactNode
}

/** Fields and the button that sends them. */
export function Form<T>({
  verb,
  act,
  onDone,
  onCancel,
  isDisabled,
  color,
  isSecondary,
  asks,
  children,
}: FormProps<T>) {
  const acting = useMutation({ mutationFn: act, onSuccess: onDone })
  const wrong = acting.error instanceof Problem ? acting.error.fields : {}
  const form = (submit: () => void) => (
    <form
      onSubmit={(event) => {
        event.preventDefault()
        // A form in a drawer of a form is its own.
        event.stopPropagation()
        submit()
      }}
    >
      <Stack gap="md">
        {children(wrong)}
        {acting.isError && <Failure error={acting.error} />}
        <Group gap="xs">
          <Button
            type="submit"
            color={color}
            variant={isSecondary ? 'default' : 'filled'}
            loading={acting.isPending}
            disabled={isDisabled}
          >
            {verb}
          </Button>
          {onCancel && (
            <Button variant="default" onClick={onCancel}>
              Cancel
            </Button>
          )}
        </Group>
      </Stack>
    </form>
  )
  // The fields stay the same elements when the question becomes known.
  return (
    <Confirm verb={verb} title={asks?.title ?? ''} loses={asks?.loses} act={() => acting.mutateAsync()}>
      {(open) => form(asks ? open : acting.mutate)}
    </Confirm>
  )
}
