import { Button, Group, Text, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { type AuditSearch, filterOf } from '../lib/auditFilter'
import { Empty } from './State'
import ui from './ui.module.css'

/** The filter that an address asks for, once the person has stopped typing. */
export function useAuditFilter({ actor, action, from, to }: AuditSearch) {
  const [asked] = useDebouncedValue(JSON.stringify({ actor, action, from, to }), 300)
  return filterOf(JSON.parse(asked))
}

interface AuditFiltersProps {
  asked: AuditSearch
  set: (name: keyof AuditSearch, value: string | undefined) => void
}

export function AuditFilters({
  asked: { actor = '', action = '', from = '', to = '' },
  set,
}: AuditFiltersProps) {
  return (
    <Group className={ui.tableBar} gap="xs">
      <TextInput
        data-search
        aria-label="Who"
        placeholder="Address or name begins with"
        value={actor}
        onChange={(event) => set('actor', event.currentTarget.value || undefined)}
        w={{ base: '100%', xs: 240 }}
      />
      <TextInput
        aria-label="Action"
        placeholder="Action begins with"
        value={action}
        onChange={(event) => set('action', event.currentTarget.value || undefined)}
        w={{ base: '100%', xs: 210 }}
      />
      <TextInput
        type="date"
        aria-label="From"
        leftSection={<Text size="sm">From</Text>}
        leftSectionWidth={56}
        leftSectionPointerEvents="none"
        value={from}
        onChange={(event) => set('from', event.currentTarget.value || undefined)}
      />
      <TextInput
        type="date"
        aria-label="To"
        leftSection={<Text size="sm">To</Text>}
        leftSectionWidth={40}
        leftSectionPointerEvents="none"
        value={to}
        onChange={(event) => set('to', event.currentTarget.value || undefined)}
      />
    </Group>
  )
}

export const NoEntryFits = ({ clear }: { clear: () => void }) => (
  <Empty
    title="No entry fits"
    action={
      <Button variant="default" onClick={clear}>
        Show all entries
      </Button>
    }
  >
    Shorten the name or the action, or choose a longer time.
  </Empty>
)
