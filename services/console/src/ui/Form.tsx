import { Alert, Button, Group, Stack, Text } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { type ReactNode, useEffect, useRef, useState } from 'react'
import { Problem } from '../api/problem'
import { Confirm } from './Confirm'
import { useHold } from './hold'
import { Failure } from './State'

interface FormProps<T> {
  /** Such as "Save rules". */
  verb: string
  /** `overwrites`: the change of another tab or person, which an attempt has found, is replaced. */
  act: (overwrites: boolean) => Promise<T>
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
  const isSending = useRef(false)
  const acting = useMutation({
    mutationFn: act,
    onSuccess: onDone,
    onSettled: () => {
      isSending.current = false
    },
  })
  /** The second click of a double click may come before the button is drawn anew. */
  const send = (overwrites: boolean) => {
    if (isSending.current) return
    isSending.current = true
    acting.mutate(overwrites)
  }
  const isSlow = useSlow(acting.isPending)
  useHold(acting.isPending)
  const problem = acting.error instanceof Problem ? acting.error : undefined
  const isConflict = problem?.isConflict ?? false
  const wrong = problem?.fields ?? {}
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
        {acting.isError && !isConflict && <Failure error={acting.error} />}
        {isConflict && <Conflict isNew={problem?.isTaken ?? false} overwrite={() => send(true)} />}
        <Text size="sm" c="dimmed" role="status" hidden={!isSlow}>
          {isSlow && 'The server is taking a long time to answer. Your input is kept.'}
        </Text>
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
    <Confirm verb={verb} title={asks?.title ?? ''} loses={asks?.loses} act={() => acting.mutateAsync(false)}>
      {(open) => form(asks ? open : () => send(false))}
    </Confirm>
  )
}

const SLOW_MS = 5_000

function useSlow(isPending: boolean) {
  const [isSlow, setSlow] = useState(false)
  useEffect(() => {
    if (!isPending) return
    const timer = setTimeout(() => setSlow(true), SLOW_MS)
    return () => {
      clearTimeout(timer)
      setSlow(false)
    }
  }, [isPending])
  return isSlow
}

interface ConflictProps {
  /** The form is of something new. */
  isNew: boolean
  overwrite: () => void
}

const Conflict = ({ isNew, overwrite }: ConflictProps) => (
  <Alert
    color="orange"
    variant="light"
    role="alert"
    title={isNew ? 'There is one of this name already' : 'It has changed since you opened it'}
  >
    <Text size="sm">
      {isNew
        ? 'Another tab or person created it, or an attempt of yours whose answer did not arrive. Your input is still here. Reload the page to see what is there, or replace it with yours.'
        : 'Another tab or person saved a change after this form was opened. Your input is still here. Reload the page to see their change, or replace it with yours.'}
    </Text>
    <Button size="xs" variant="default" mt="xs" onClick={overwrite}>
      {isNew ? 'Replace it' : 'Replace their change'}
    </Button>
  </Alert>
)
