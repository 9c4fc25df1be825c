// Text for screen readers while the focus stays where it is: one polite live region for the whole page.

import { useEffect, useRef, useSyncExternalStore } from 'react'
import { plural } from '../lib/format'

/** The text is removed after this time, because a screen reader does not say a text again that has not changed. */
const SHOWN_MS = 1_000
/** Shortest time between two announcements of the number of received messages. */
const COUNT_MS = 10_000

let said = ''
let timer: ReturnType<typeof setTimeout> | undefined
const listeners = new Set<() => void>()

function show(text: string) {
  said = text
  for (const listener of listeners) listener()
}

export function announce(text: string) {
  show(text)
  clearTimeout(timer)
  timer = setTimeout(() => show(''), SHOWN_MS)
}

function subscribe(listener: () => void) {
  listeners.add(listener)
  return () => void listeners.delete(listener)
}

export const useAnnounced = () => useSyncExternalStore(subscribe, () => said)

let shownPage: string | null = null

/** Says the name of a page that opens by a link. The browser itself says that of the first one. */
export function announcePage(name: string) {
  if (shownPage !== null && shownPage !== name) announce(name)
  shownPage = name
}

/** Says how many messages have come: of the first one at once, then after COUNT_MS at the earliest. */
export function useReceivedText(received: number) {
  const last = useRef({ received: 0, at: Number.NEGATIVE_INFINITY })
  useEffect(() => {
    // The list was emptied.
    if (received < last.current.received) last.current.received = received
    if (received === last.current.received) return
    const waitMs = Math.max(0, last.current.at + COUNT_MS - performance.now())
    const timer = setTimeout(() => {
      last.current = { received, at: performance.now() }
      announce(`${plural(received, 'message')} received`)
    }, waitMs)
    return () => clearTimeout(timer)
  }, [received])
}
