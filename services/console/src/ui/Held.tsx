import { type ReactNode, useState } from 'react'

interface HeldProps<T> {
  latest: T
  children: (held: T, setTouched: (isTouched: boolean) => void) => ReactNode
}

const etagOf = (one: { etag: string } | null) => one?.etag

/** The value that a form began with. A later one of the server takes its place only while nothing is typed: a page is loaded again
 * whenever a person comes back to its tab. */
export function Held<T extends { etag: string } | null>({ latest, children }: HeldProps<T>) {
  const [held, setHeld] = useState(latest)
  const [isTouched, setTouched] = useState(false)
  if (!isTouched && etagOf(held) !== etagOf(latest)) setHeld(latest)
  return children(held, setTouched)
}
