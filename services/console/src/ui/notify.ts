import { notifications } from '@mantine/notifications'
import { Problem } from '../api/problem'
import { legible } from '../lib/format'

/** Says that something was done. */
export const done = (message: string) =>
  notifications.show({ message: legible(message), color: 'mill', autoClose: 4000 })

/** Says that a change of a broker was saved, and in how many ms it is in force; null: unknown. */
export function saved(message: string, inForceMs: number | null) {
  if (inForceMs === null) return done(message)
  const now = { message: `${message} In force now.`, color: 'mill', autoClose: 4000 }
  if (inForceMs === 0) return notifications.show(now)
  const later = `${message} In force in about ${Math.ceil(inForceMs / 1000)} s.`
  const id = notifications.show({ message: later, color: 'mill', autoClose: false })
  setTimeout(() => notifications.update({ ...now, id }), inForceMs)
}

/** Says that something could not be done, and what to do. */
export const notDone = (message: string) => notifications.show({ message, color: 'red', autoClose: 10_000 })

/** Says why a request failed. */
export const failed = (error: unknown) =>
  notDone(error instanceof Problem ? error.message : 'Something went wrong. Reload the page and try again.')
