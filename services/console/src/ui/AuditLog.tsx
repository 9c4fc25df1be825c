import { Button, Stack, Text } from '@mantine/core'
import { IconDownload } from '@tabler/icons-react'
import { type QueryKey, useInfiniteQuery } from '@tanstack/react-query'
import { type ReactNode, useEffect, useMemo } from 'react'
import type { AuditEntry, AuditPage } from '../api/organisation'
import { actionText, targetText } from '../lib/actions'
import { absolute, count } from '../lib/format'
import { save } from '../lib/save'
import { Code } from './Code'
import { Drawer } from './Drawer'
import { Panel } from './Page'
import { type Column, Rows } from './Rows'
import { Facts } from './Stat'
import { Empty, Failure, Loaded, Loading, RestFailed } from './State'

/** Entries that fill the screen. */
const PAGE_ROWS = 100
/** Pages that are read one after the other while they have few entries. Scrolling, or a button, reads further ones. */
const SHORT_PAGES_MAX = 5
/** Entries that the server reads for one page with a filter. */
const SCANNED = 2_000

interface AuditLogProps {
  title?: string
  lead: string
  empty: string
  /** Filters above the rows. */
  filters?: ReactNode
  /** Shown instead of the rows while a filter lets no entry through. */
  nothingFits?: ReactNode
  columns: Column<AuditEntry>[]
  /** Names of ids that the page knows. */
  names?: Record<string, string>
  queryKey: QueryKey
  page: (cursor: string | undefined, signal: AbortSignal) => Promise<AuditPage>
  /** Name of the downloaded file. */
  fileName: string
  rowsShown?: number
  /** The entry that the address names. */
  chosen: string | undefined
  onChoose: (entry: string | undefined) => void
}

/** Entries of an audit log, the latest first. Older pages are loaded when the end of the rows comes into sight. */
export function AuditLog(props: AuditLogProps) {
  const {
    title = 'Audit log',
    lead,
    empty,
    filters,
    nothingFits,
    columns,
    names,
    queryKey,
    page,
    fileName,
    rowsShown,
    chosen,
    onChoose,
  } = props
  const query = useInfiniteQuery({
    queryKey,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) => page(pageParam, signal),
    getNextPageParam: (last) => last.next_cursor ?? undefined,
  })
  const rows = useMemo(() => query.data?.pages.flatMap(({ items }) => items) ?? [], [query.data])
  const { hasNextPage, isFetching, isFetchNextPageError, fetchNextPage } = query
  const more = () => {
    // A page that failed would fail again at once.
    if (hasNextPage && !isFetching && !isFetchNextPageError) void fetchNextPage()
  }
  const read = query.data?.pages.length ?? 0
  const open = rows.find((entry) => keyOf(entry) === chosen)
  const isWanted = rows.length < PAGE_ROWS || (chosen !== undefined && !open)
  const isSearching = isWanted && hasNextPage && !isFetchNextPageError && read < SHORT_PAGES_MAX

  // With a filter, a page may be short although entries of later pages match.
  useEffect(() => {
    if (isSearching && !isFetching) void fetchNextPage()
  }, [isSearching, isFetching, fetchNextPage])
  const download = () =>
    save(`${rows.map((row) => JSON.stringify(row)).join('\n')}\n`, fileName, 'application/x-ndjson')
  return (
    <Panel
      isFlush
      title={title}
      lead={lead}
      actions={
        <Button
          size="xs"
          variant="default"
          leftSection={<IconDownload size={14} />}
          onClick={download}
          disabled={rows.length === 0}
        >
          Download these entries
        </Button>
      }
    >
      {filters}
      <Loaded query={query} height={400}>
        {() =>
          rows.length === 0 && isSearching ? (
            <Empty title="Searching">The log is read from the latest entry back.</Empty>
          ) : rows.length === 0 && hasNextPage ? (
            <Empty
              title="No entry matches so far"
              action={
                <Button variant="default" onClick={more}>
                  Search older entries
                </Button>
              }
            >
              Up to {count(read * SCANNED)} of the latest entries were searched. A start time limits the
              search.
            </Empty>
          ) : rows.length === 0 && nothingFits ? (
            nothingFits
          ) : rows.length === 0 ? (
            <Empty title={empty}>
              Each change is listed here with its time, its author, and the values before and after.
            </Empty>
          ) : (
            <Rows
              label="Audit log"
              rowPx={52}
              rows={rows}
              rowsShown={rowsShown}
              columns={columns}
              idOf={keyOf}
              onOpen={(entry) => onChoose(keyOf(entry))}
              detailOf={(one) => `${actionText(one.action)}, ${one.actor.name}, ${targetText(one, names)}`}
              onEnd={more}
            />
          )
        }
      </Loaded>
      {isFetchNextPageError && <RestFailed query={query} shown={rows.length} noun="entries" />}
      <Drawer
        opened={chosen !== undefined}
        onClose={() => onChoose(undefined)}
        title={open ? actionText(open.action) : 'Entry'}
        size={560}
      >
        <Loaded query={query}>
          {() =>
            open ? (
              <Entry entry={open} names={names} />
            ) : isSearching ? (
              <Loading />
            ) : isFetchNextPageError ? (
              <Failure error={query.error} retry={() => void fetchNextPage()} />
            ) : (
              <Missing isMore={hasNextPage} close={() => onChoose(undefined)} />
            )
          }
        </Loaded>
      </Drawer>
    </Panel>
  )
}

function Missing({ isMore, close }: { isMore: boolean; close: () => void }) {
  const action = (
    <Button variant="default" onClick={close}>
      See the log
    </Button>
  )
  if (isMore)
    return (
      <Empty title="The entry is further down" action={action}>
        Close this and scroll down: the list then loads older entries.
      </Empty>
    )
  return (
    <Empty title="The log has no such entry" action={action}>
      It may be older than the log, hidden by the filter, or of another organisation.
    </Empty>
  )
}

const keyOf = ({ id, at_ms, action, target }: AuditEntry) => id ?? `${at_ms} ${action} ${target}`

function Entry({ entry, names }: { entry: AuditEntry; names: Record<string, string> | undefined }) {
  const { action, actor, at_ms, target } = entry
  const name = targetText(entry, names)
  const { before, after, ...others } = entry.details ?? {}
  const details = { ...others, before, after }
  return (
    <Stack gap="md">
      <Facts
        rows={[
          ['When', absolute(at_ms)],
          [
            'Action',
            <span key="action" className="mono">
              {action}
            </span>,
          ],
          ['Who', `${actor.name} (${actor.kind})`],
          ...(actor.made_by ? [['Token created by', actor.made_by] as [string, string]] : []),
          ['From', actor.address ?? 'not known'],
          ['Program', actor.agent ?? 'not known'],
          [
            'Target',
            <span key="target" className="mono">
              {name}
              {name !== target && (
                <Text component="div" size="xs" c="dimmed">
                  {target}
                </Text>
              )}
            </span>,
          ],
        ]}
      />
      {Object.keys(entry.details ?? {}).length > 0 && (
        <Code text={JSON.stringify(details, null, 2)} label="the details" />
      )}
    </Stack>
  )
}
