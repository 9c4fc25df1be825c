import { useSyncExternalStore } from 'react'
import { absolute, relative } from '../lib/format'

// One clock for all times of a page.
let now = Date.now()
let timer: ReturnType<typeof setInterval> | undefined
const listeners = new Set<() => void>()

function subscribe(listener: () => void) {
  listeners.add(listener)
  timer ??= setInterval(() => {
    now = Date.now()
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

/** A time as people say it, with the exact one on hover. Lists draw thousands of these, so the hint is the browser's own. */
export function Time({ at }: { at: number }) {
  const now = useNow()
  return (
    <time dateTime={new Date(at).toISOString()} title={absolute(at)}>
      {relative(at, Math.max(now, Date.now()))}
    </time>
  )
}
