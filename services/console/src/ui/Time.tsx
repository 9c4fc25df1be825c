import { Tooltip } from '@mantine/core'
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

/** A time as people say it, with the exact one on hover. */
export function Time({ at }: { at: number }) {
  const now = useNow()
  return (
    <Tooltip label={absolute(at)} openDelay={300}>
      <time dateTime={new Date(at).toISOString()}>{relative(at, Math.max(now, Date.now()))}</time>
    </Tooltip>
  )
}
