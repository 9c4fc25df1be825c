// Keyboard shortcuts of the whole page. They do nothing while somebody types into a field, except Ctrl K.

import { useHotkeys } from '@mantine/hooks'
import { useEffect, useRef } from 'react'
import { undoLatest } from '../ui/undo'

const CHORD_MS = 1000

/** A page and the key that opens it after "g". */
interface KeyedPage {
  key: string
  open: () => void
}

/** Ctrl K opens the palette; "g" and the key of a page open that page; "/" goes into the search of a list; Ctrl Z takes back the change
 * that a note still offers to undo. */
export function useShortcuts(openPalette: () => void, pages: readonly KeyedPage[]) {
  const latest = useRef(pages)
  latest.current = pages
  useHotkeys([['mod+K', openPalette]], [])
  useHotkeys([
    [
      '/',
      (event) => {
        const search = document.querySelector<HTMLInputElement>('input[data-search]')
        if (!search) return
        event.preventDefault()
        search.focus()
      },
    ],
    [
      'mod+Z',
      (event) => {
        if (undoLatest()) event.preventDefault()
      },
      { preventDefault: false },
    ],
  ])
  useEffect(() => {
    let began = 0
    const listen = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement
      if (event.ctrlKey || event.metaKey || event.altKey) return
      if (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return
      if (event.key === 'g') {
        began = event.timeStamp
        return
      }
      const isSecond = event.timeStamp - began < CHORD_MS
      began = 0
      const page = latest.current.find(({ key }) => key === event.key)
      if (!isSecond || !page) return
      event.preventDefault()
      page.open()
    }
    window.addEventListener('keydown', listen)
    return () => window.removeEventListener('keydown', listen)
  }, [])
}
