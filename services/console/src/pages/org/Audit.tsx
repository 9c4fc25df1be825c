import { Button, Group, Text, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useOrganisation } from '../../api/brokers'
import { type AuditEntry, auditPage } from '../../api/organisation'
import { actionSaid } from '../../lib/actions'
import { filterOf } from '../../lib/auditFilter'
import { AuditLog } from '../../ui/AuditLog'
import { Email } from '../../ui/Email'
import type { Column } from '../../ui/Rows'
import { Empty } from '../../ui/State'
import { Time } from '../../ui/Time'
import ui from '../../ui/ui.module.css'

const columns: Column<AuditEntry>[] = [
  { key: 'at', header: 'When', width: '80px', cell: ({ at_ms }) => <Time at={at_ms} /> },
  {
    key: 'actor',
    header: 'Who',
    width: 'minmax(0, 1fr)',
    isWrapped: true,
    cell: ({ actor }) => <Email address={actor.name} />,
  },
  {
    key: 'action',
    header: 'Action',
    width: 'minmax(0, 1fr)',
    isWrapped: true,
    cell: ({ action }) => <span title={action}>{actionSaid(action)}</span>,
  },
  {
    key: 'target',
    header: 'Target',
    width: 'minmax(0, 1.5fr)',
    isExtra: true,
    cell: ({ target }) => <span className="mono">{target}</span>,
  },
  {
    key: 'address',
    header: 'Address',
    width: '120px',
    isExtra: true,
    cell: ({ actor }) => actor.address ?? '–',
  },
]

/** Changes, who made them and from where. */
export function Audit() {
  const { id } = useOrganisation()
  const {
    actor = '',
    action = '',
    from = '',
    to = '',
    entry,
  } = useSearch({ from: '/signed-in/org/$organisation' })
  const navigate = useNavigate({ from: '/org/$organisation' })
  const [asked] = useDebouncedValue(JSON.stringify({ actor, action, from, to }), 300)
  const filter = filterOf(JSON.parse(asked))
  const set = (name: 'actor' | 'action' | 'from' | 'to', value: string) =>
    void navigate({ search: (before) => ({ ...before, [name]: value || undefined }), replace: true })
  const clear = () =>
    void navigate({
      search: ({ actor: _, action: __, from: ___, to: ____, ...rest }) => rest,
      replace: true,
    })
  return (
    <AuditLog
      lead="Every change, the latest first."
      empty="Nothing was changed yet"
      filters={
        <Group className={ui.tableBar} gap="xs">
          <TextInput
            data-search
            aria-label="Who"
            placeholder="Address or name begins with"
            value={actor}
            onChange={(event) => set('actor', event.currentTarget.value)}
            w={{ base: '100%', xs: 240 }}
          />
          <TextInput
            aria-label="Action"
            placeholder="Action begins with"
            value={action}
            onChange={(event) => set('action', event.currentTarget.value)}
            w={{ base: '100%', xs: 210 }}
          />
          <TextInput
            type="date"
            aria-label="From"
            leftSection={<Text size="sm">From</Text>}
            leftSectionWidth={56}
            leftSectionPointerEvents="none"
            value={from}
            onChange={(event) => set('from', event.currentTarget.value)}
          />
          <TextInput
            type="date"
            aria-label="To"
            leftSection={<Text size="sm">To</Text>}
            leftSectionWidth={40}
            leftSectionPointerEvents="none"
            value={to}
            onChange={(event) => set('to', event.currentTarget.value)}
          />
        </Group>
      }
      nothingFits={
        Object.keys(filter).length > 0 && (
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
      }
      columns={columns}
      queryKey={['org', id, 'audit', filter]}
      page={(cursor, signal) => auditPage({ organisation: id, filter }, cursor, signal)}
      fileName="audit.jsonl"
      chosen={entry}
      onChoose={(entry) => void navigate({ search: (before) => ({ ...before, entry }), resetScroll: false })}
    />
  )
}
