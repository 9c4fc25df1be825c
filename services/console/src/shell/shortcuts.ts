import { useHotkeys } from '@mantine/hooks'
import { useNavigate, useParams } from '@tanstack/react-router'
import { useEffect } from 'react'
import { PAGES } from './pages'

const CHORD_MS = 1000

/** Ctrl K opens the palette; "g" and the key of a page open it; "/" goes into the search of a list. */
export function useShortcuts(openPalette: () => void) {
  const navigate = useNavigate()
  const { broker } = useParams({ strict: false })
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
      const page = PAGES.find(({ key }) => key === event.key)
      if (!isSecond || !page || !broker) return
      event.preventDefault()
      void navigate({ to: page.path === '/' ? '/b/$broker' : `/b/$broker${page.path}`, params: { broker } })
    }
    window.addEventListener('keydown', listen)
    return () => window.removeEventListener('keydown', listen)
  }, [broker, navigate])
}
