import { createSpotlight, Spotlight, type SpotlightActionGroupData } from '@mantine/spotlight'
import '@mantine/spotlight/styles.layer.css'
import { IconSearch } from '@tabler/icons-react'
import { type KeyboardEvent, useEffect } from 'react'
import { describeToScreenReaders } from './paletteRoles'

export type Group = SpotlightActionGroupData

const [store, spotlight] = createSpotlight()

/** Enter opens the first thing that was found, unless the arrows have chosen another one. */
function openFirst(event: KeyboardEvent) {
  if (event.key !== 'Enter' || document.querySelector('[data-action][data-selected]')) return
  event.preventDefault()
  document.querySelector<HTMLElement>('[data-action]')?.click()
}

/** Returns the focus when the palette closes. Mantine's dialog would, but React removes it earlier. */
function useFocusReturn() {
  useEffect(() => {
    const before = document.activeElement
    return () => {
      requestAnimationFrame(() => {
        if (document.activeElement === document.body && before instanceof HTMLElement) before.focus()
      })
    }
  }, [])
}

interface PaletteDialogProps {
  close: () => void
  query: string
  onQuery: (query: string) => void
  groups: readonly Group[]
  placeholder: string
}

/** The search that Ctrl K opens. The caller finds the results: tenants and operators search different things. */
export function PaletteDialog({ close, query, onQuery, groups, placeholder }: PaletteDialogProps) {
  useFocusReturn()
  useEffect(() => spotlight.open(), [])
  return (
    <Spotlight
      store={store}
      onSpotlightClose={close}
      query={query}
      onQueryChange={onQuery}
      actions={groups.filter(({ actions }) => actions.length > 0)}
      nothingFound="No result"
      highlightQuery
      scrollable
      maxHeight={420}
      shortcut={null}
      searchProps={{
        ref: describeToScreenReaders,
        leftSection: <IconSearch size={18} />,
        placeholder,
        'aria-label': 'Search',
        onKeyDown: openFirst,
      }}
    />
  )
}
