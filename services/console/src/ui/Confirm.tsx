import { Button, Group, Modal, Stack, Text, TextInput } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useMutation } from '@tanstack/react-query'
import { type ReactNode, useRef, useState } from 'react'
import { legible } from '../lib/format'
import { useHold } from './hold'
import { Failure } from './State'

interface ConfirmProps {
  /** Text of the button, such as "Delete broker". */
  verb: string
  title: string
  /** The losses, in numbers. */
  loses: ReactNode
  /** Text that the person must type; without it one click suffices. */
  name?: string
  act: () => Promise<unknown>
  onDone?: () => void
  /** The element that opens the question. */
  children: (open: () => void) => ReactNode
}

/** Asks before something is lost. */
export function Confirm({ verb, title, loses, name, act, onDone, children }: ConfirmProps) {
  const [isOpen, { open, close }] = useDisclosure(false)
  const [typed, setTyped] = useState('')
  const isSending = useRef(false)
  const acting = useMutation({
    mutationFn: act,
    onSettled: () => {
      isSending.current = false
    },
    onSuccess: () => {
      close()
      onDone?.()
    },
  })
  const begin = () => {
    setTyped('')
    acting.reset()
    open()
  }
  useHold(isOpen)
  // A character that does not show cannot be typed.
  const isRight = name === undefined || typed === name || typed === legible(name)
  return (
    <>
      {children(begin)}
      <Modal opened={isOpen} onClose={close} title={legible(title)}>
        <form
          onSubmit={(event) => {
            event.preventDefault()
            if (!isRight || isSending.current) return
            isSending.current = true
            acting.mutate()
          }}
        >
          <Stack gap="md">
            <Text size="sm" component="div">
              {loses}
            </Text>
            {name !== undefined && (
              <TextInput
                label={`Type ${legible(name)} to confirm`}
                value={typed}
                onChange={(event) => setTyped(event.currentTarget.value)}
                autoComplete="off"
                data-autofocus
              />
            )}
            {acting.isError && <Failure error={acting.error} />}
            <Group justify="flex-end" gap="xs">
              <Button variant="default" onClick={close}>
                Cancel
              </Button>
              <Button type="submit" color="red" disabled={!isRight} loading={acting.isPending}>
                {verb}
              </Button>
            </Group>
          </Stack>
        </form>
      </Modal>
    </>
  )
}
