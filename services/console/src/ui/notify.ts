import { notifications } from '@mantine/notifications'
import { Problem } from '../api/problem'

/** Says that something was done. */
export const done = (message: string) => notifications.show({ message, color: 'mill', autoClose: 4000 })

/** Says why something could not be done. */
export function failed(error: unknown) {
  const message = error instanceof Problem ? error.message : 'It did not work. Reload the page and try again.'
  notifications.show({ message, color: 'red', autoClose: 10_000 })
}
