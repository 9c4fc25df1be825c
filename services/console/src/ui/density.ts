// How high the rows of tables are. The browser keeps the choice, as it keeps the colour scheme.

import { useSyncExternalStore } from 'react'

export type Density = 'spacious' | 'compact'

const KEY = 'millrace.density'
/** A row of this height or more holds text of two lines, or a button, with room around it. */
const HIGH_ROW_PX = 44
/** Pixels that a compact row is lower than a spacious one. */
const HIGH_ROW_SAVED_PX = 12
const LOW_ROW_SAVED_PX = 6

let density: Density = read()
const listeners = new Set<() => void>()

function read(): Density {
  try {
    return localStorage.getItem(KEY) === 'compact' ? 'compact' : 'spacious'
  } catch {
    return 'spacious'
  }
}

function show(value: Density) {
  density = value
  for (const listener of listeners) listener()
}

export function setDensity(value: Density) {
  show(value)
  try {
    localStorage.setItem(KEY, value)
  } catch {
    // The choice lasts as long as the page.
  }
}

/** Another tab changed it. */
const onStorage = ({ key }: StorageEvent) => {
  if (key === KEY || key === null) show(read())
}

function subscribe(listener: () => void) {
  if (listeners.size === 0) addEventListener('storage', onStorage)
  listeners.add(listener)
  return () => {
    listeners.delete(listener)
    if (listeners.size === 0) removeEventListener('storage', onStorage)
  }
}

export const useDensity = () => useSyncExternalStore(subscribe, () => density)

/** Height of a row whose spacious height is `px`. */
export function rowHeight(px: number, density: Density) {
  if (density === 'spacious') return px
  return px - (px >= HIGH_ROW_PX ? HIGH_ROW_SAVED_PX : LOW_ROW_SAVED_PX)
}
