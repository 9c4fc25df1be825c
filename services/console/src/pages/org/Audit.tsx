import { Button, Drawer, Stack } from '@mantine/core'
import { IconDownload } from '@tabler/icons-react'
import { useInfiniteQuery } from '@tanstack/react-query'
import { useMemo, useState } from 'react'
import { useOrganisation } from '../../api/brokers'
import { type AuditEntry, auditPage } from '../../api/organisation'
import { actionSaid } from '../../lib/actions'
import { absolute } from '../../lib/format'
import { save } from '../../lib/save'
import { Code } from '../../ui/Code'
import { Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Facts } from '../../ui/Stat'
import { Empty, Loaded } from '../../ui/State'
import { Time } from '../../ui/Time'

const columns: Column<AuditEntry>[] = [
  { key: 'at', header: 'When', width: '80px', cell: ({ at_ms }) => <Time at={at_ms} /> },
  {
    key: 'actor',
    header: 'Who',
    width: 'minmax(0, 1fr)',
    cell: ({ actor }) => <span title={actor.name}>{actor.name}</span>,
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
  const [open, setOpen] = useState<AuditEntry | null>(null)
  const query = useInfiniteQuery({
    queryKey: ['org', id, 'audit'],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) => auditPage(id, pageParam, signal),
    getNextPageParam: (last) => last.next_cursor ?? undefined,
  })
  const rows = useMemo(() => query.data?.pages.flatMap(({ items }) => items) ?? [], [query.data])
  const { hasNextPage, isFetching, fetchNextPage } = query
  const more = () => {
    if (hasNextPage && !isFetching) void fetchNextPage()
  }
  const download = () =>
    save(`${rows.map((row) => JSON.stringify(row)).join('\n')}\n`, 'audit.jsonl', 'application/x-ndjson')
  return (
    <Panel
      isFlush
      title="Audit log"
      lead="Every change, the latest first."
      actions={
        <Button size="xs" variant="default" leftSection={<IconDownload size={14} />} onClick={download}>
          Download these entries
        </Button>
      }
    >
      <Loaded query={query} height={400}>
        {() =>
          rows.length === 0 ? (
            <Empty title="Nothing was changed yet" />
          ) : (
            <Rows
              label="Audit log"
              rowPx={52}
              rows={rows}
              columns={columns}
              idOf={keyOf}
              onOpen={setOpen}
              onEnd={more}
            />
          )
        }
      </Loaded>
      <Drawer opened={open !== null} onClose={() => setOpen(null)} title={open?.action} size={560}>
        {open && <Entry entry={open} />}
      </Drawer>
    </Panel>
  )
}

const keyOf = ({ id, at_ms, action, target }: AuditEntry) => id ?? `${at_ms} ${action} ${target}`

function Entry({ entry }: { entry: AuditEntry }) {
  const { actor, at_ms, target, details } = entry
  return (
    <Stack gap="md">
      <Facts
        rows={[
          ['When', absolute(at_ms)],
          ['Who', `${actor.name} (${actor.kind})`],
          ['From', actor.address ?? 'not known'],
          [
            'Target',
            <span key="target" className="mono">
              {target}
            </span>,
          ],
        ]}
      />
      <Code text={JSON.stringify(details, null, 2)} label="the details" isWrapped />
    </Stack>
  )
}
