// Tracks whether the server answers. Every request reports its outcome, so the page can show since when the
// server is unreachable, and queries run again when it is back.

import { useSyncExternalStore } from 'react'
import { now } from '../lib/clock'

/** Unix milliseconds; null while the server answers. */
let silentSince: number | null = null
const listeners = new Set<() => void>()
const onBack = new Set<() => void>()

function set(value: number | null) {
  if ((silentSince === null) === (value === null)) return
  const isBack = value === null
  silentSince = value
  for (const listener of listeners) listener()
  if (isBack) for (const listener of onBack) listener()
}

export const answered = () => set(null)
export const silent = () => set(now())

/** A proxy answers with these codes while it cannot reach the server. */
export const isUnreachable = (status: number) => status === 502 || status === 503 || status === 504

/** Asks whether the server is there, with the smallest request of its API. */
export const probe = () =>
  fetch('/api/v1/sign-in/ways').then(({ status }) => (isUnreachable(status) ? silent() : answered()), silent)

/** `listener` runs when the server answers again. */
export function whenBack(listener: () => void) {
  onBack.add(listener)
  return () => onBack.delete(listener)
}

const subscribe = (listener: () => void) => {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

/** Since when the server has not answered, unix milliseconds; null while it answers. */
export const useSilentSince = () => useSyncExternalStore(subscribe, () => silentSince)
