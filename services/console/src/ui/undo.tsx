// Says that something was done, with a button that takes it back while the note is there. Ctrl Z does the same.

import { Button, Group } from '@mantine/core'
import { notifications } from '@mantine/notifications'
import { legible } from '../lib/format'
import { done, failed } from './notify'

/** Long enough to reach the button with the keyboard. While the pointer is over the note, it stays. */
const SHOWN_MS = 15_000

export interface Undo {
  /** Takes the change back. */
  act: () => Promise<unknown>
  /** The note after `act` has worked, such as "The ban storm is back." */
  said: string
  onDone?: () => void
}

let latest: { id: string; run: () => void } | null = null

/** Content of a note with its button. `id` is that of the note. */
function undoNote(id: string, message: string, undo: Undo) {
  const run = () => {
    if (latest?.id === id) latest = null
    notifications.hide(id)
    void undo.act().then(() => {
      done(undo.said)
      undo.onDone?.()
    }, failed)
  }
  latest = { id, run }
  return (
    <Group justify="space-between" wrap="nowrap" gap="sm">
      <span>{legible(message)}</span>
      <Button size="compact-sm" variant="default" onClick={run} aria-keyshortcuts="Control+Z">
        Undo
      </Button>
    </Group>
  )
}

/** Says that something was done, and offers to take it back. Returns the id of the note. */
export function undoable(message: string, undo: Undo): string {
  const id = crypto.randomUUID()
  notifications.show({
    id,
    message: undoNote(id, message, undo),
    color: 'mill',
    autoClose: SHOWN_MS,
    onClose: () => {
      if (latest?.id === id) latest = null
    },
  })
  return id
}

/** Says that a change of a broker was saved and in how many ms it is in force (null: unknown), and offers to take it back. */
export function savedUndoable(message: string, inForceMs: number | null, undo: Undo) {
  if (inForceMs === null) return void undoable(message, undo)
  const now = `${message} In force now.`
  if (inForceMs === 0) return void undoable(now, undo)
  const id = undoable(`${message} In force in about ${Math.ceil(inForceMs / 1000)} s.`, undo)
  setTimeout(() => {
    if (latest?.id === id) notifications.update({ id, message: undoNote(id, now, undo) })
  }, inForceMs)
}

/** Takes back the latest change whose note is still shown. False: there is none. */
export function undoLatest(): boolean {
  if (latest === null) return false
  latest.run()
  return true
}
