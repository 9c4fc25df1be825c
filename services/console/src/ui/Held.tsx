import { type ReactNode, useState } from 'react'

interface HeldProps<T> {
  latest: T
  children: (held: T, setTouched: (isTouched: boolean) => void) => ReactNode
}

/** The value that a form began with. A later one of the server takes its place only while nothing is typed: a page is loaded again
 * whenever a person comes back to its tab. A person whose role has changed may see more of the value under the same ETag. */
export function Held<T>({ latest, children }: HeldProps<T>) {
  const [held, setHeld] = useState(latest)
  const [isTouched, setTouched] = useState(false)
  if (!isTouched && held !== latest) setHeld(latest)
  return children(held, setTouched)
}
