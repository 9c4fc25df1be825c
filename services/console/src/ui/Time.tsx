import { useSyncExternalStore } from 'react'
import { now as serverNow } from '../lib/clock'
import { absolute, relative } from '../lib/format'

// One timer for all times of a page.
let now = serverNow()
let timer: ReturnType<typeof setInterval> | undefined
const listeners = new Set<() => void>()

function subscribe(listener: () => void) {
  listeners.add(listener)
  timer ??= setInterval(() => {
    now = serverNow()
    for (const one of listeners) one()
  }, 1000)
  return () => {
    listeners.delete(listener)
    if (listeners.size > 0) return
    clearInterval(timer)
    timer = undefined
  }
}

export const useNow = () => useSyncExternalStore(subscribe, () => now)

/** A relative time, such as "2 minutes ago", with the exact time on hover. Lists show thousands of times, so the hint is `title` and no component. */
export function Time({ at }: { at: number }) {
  // May be a second old, or older if no time was shown before, so it only makes the text draw again.
  const now = useNow()
  return (
    <time dateTime={new Date(at).toISOString()} title={absolute(at)}>
      {relative(at, Math.max(now, serverNow()))}
    </time>
  )
}
