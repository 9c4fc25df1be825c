// Whether the session has ended while pages are open. They stay, with what was typed into them, until the same person signs in again.

import { useSyncExternalStore } from 'react'

let isOver = false
const listeners = new Set<() => void>()

export const isSessionOver = () => isOver

export function setSessionOver(over: boolean) {
  isOver = over
  for (const listener of listeners) listener()
}

function subscribe(listener: () => void) {
  listeners.add(listener)
  return () => void listeners.delete(listener)
}

export const useSessionOver = () => useSyncExternalStore(subscribe, isSessionOver)
