import { Tabs } from '@mantine/core'
import { useEffect, useRef } from 'react'

interface TabListProps {
  tabs: readonly { value: string; label: string }[]
  /** The tab that is shown: in a narrow window it is scrolled into sight. */
  value?: string
}

/** Tabs in one row, which scrolls sideways where the window is narrow. */
export function TabList({ tabs, value }: TabListProps) {
  const list = useRef<HTMLDivElement>(null)
  // biome-ignore lint/correctness/useExhaustiveDependencies: another tab is shown
  useEffect(() => {
    const shown = list.current?.querySelector<HTMLElement>('[aria-selected=true]')
    if (!list.current || !shown) return
    list.current.scrollLeft = shown.offsetLeft - (list.current.clientWidth - shown.offsetWidth) / 2
  }, [value])
  return (
    <Tabs.List mb="md" ref={list}>
      {tabs.map((tab) => (
        <Tabs.Tab key={tab.value} value={tab.value}>
          {tab.label}
        </Tabs.Tab>
      ))}
    </Tabs.List>
  )
}
