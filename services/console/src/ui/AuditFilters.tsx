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
      <Day label="From" labelPx={56} value={from} set={(value) => set('from', value)} />
      <Day label="To" labelPx={40} value={to} set={(value) => set('to', value)} />
    </Group>
  )
}

interface DayProps {
  label: string
  labelPx: number
  value: string
  set: (value: string | undefined) => void
}

const Day = ({ label, labelPx, value, set }: DayProps) => (
  <TextInput
    type="date"
    aria-label={label}
    leftSection={<Text size="sm">{label}</Text>}
    leftSectionWidth={labelPx}
    leftSectionPointerEvents="none"
    value={value}
    onChange={(event) => set(event.currentTarget.value || undefined)}
  />
)

export const NoEntryFits = ({ clear }: { clear: () => void }) => (
  <Empty
    title="No entry matches"
    action={
      <Button variant="default" onClick={clear}>
        Show all entries
      </Button>
    }
  >
    Shorten the name or the action, or choose a longer time.
  </Empty>
)
