import { Tabs } from '@mantine/core'
import type { ComponentType } from 'react'
import { TabList } from './TabList'

interface TabPanelsProps {
  tabs: readonly { value: string; label: string; part: ComponentType }[]
  /** From the address; the first tab is shown for one that does not exist. */
  value: string | undefined
  onChange: (value: string | undefined) => void
}

/** The parts of a page, of which one is shown. */
export function TabPanels({ tabs, value, onChange }: TabPanelsProps) {
  const shown = (tabs.find((tab) => tab.value === value) ?? tabs[0])?.value
  return (
    <Tabs value={shown} onChange={(next) => onChange(next ?? undefined)} keepMounted={false}>
      <TabList tabs={tabs} value={shown} />
      {tabs.map(({ value, part: Part }) => (
        <Tabs.Panel key={value} value={value}>
          <Part />
        </Tabs.Panel>
      ))}
    </Tabs>
  )
}
