import { Alert, Anchor, Button, Group, Text } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useInfiniteQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useCallback, useEffect, useMemo } from 'react'
import { useBroker } from '../../api/brokers'
import { CLIENTS_MAX, type Client, clientsPage } from '../../api/live'
import { count, legible } from '../../lib/format'
import { ClientLink } from '../../ui/ClientLink'
import { Page, Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Search } from '../../ui/Search'
import { Empty, Loaded, RestFailed } from '../../ui/State'
import { Time } from '../../ui/Time'
import ui from '../../ui/ui.module.css'

const columnsOf = (broker: string): Column<Client>[] => [
  {
    key: 'id',
    header: 'Client id',
    width: 'minmax(0, 2fr)',
    cell: ({ client_id }) => <ClientLink broker={broker} id={client_id} />,
  },
  {
    key: 'user',
    header: 'User',
    width: 'minmax(0, 1fr)',
    cell: ({ user }) => (user == null ? <span className={ui.soft}>none</span> : legible(user)),
  },
  {
    key: 'address',
    header: 'Address',
    width: 'minmax(0, 1fr)',
    isExtra: true,
    cell: ({ address }) => address ?? '–',
  },
  { key: 'protocol', header: 'MQTT', width: '64px', isExtra: true, cell: ({ protocol }) => protocol },
  {
    key: 'subscriptions',
    header: 'Subscriptions',
    width: '96px',
    isNumber: true,
    isExtra: true,
    cell: ({ subscriptions }) => count(subscriptions),
  },
  {
    key: 'since',
    header: 'Connected',
    width: '92px',
    isNumber: true,
    cell: ({ connected_at_ms }) => <Time at={connected_at_ms} />,
  },
]

/** Connected clients. */
export function Clients() {
  const { broker, path } = useBroker()
  const { search = '' } = useSearch({ from: '/signed-in/b/$broker/clients' })
  const navigate = useNavigate({ from: '/b/$broker/clients' })
  const [wanted] = useDebouncedValue(search, 150)
  const query = useInfiniteQuery({
    queryKey: ['b', broker.name, 'clients', wanted],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) => clientsPage(path, wanted, pageParam, 200, signal),
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    placeholderData: (before) => before,
    // Refreshing ten thousand rows would be fifty requests: a long list is refreshed when it is asked for.
    refetchInterval: ({ state }) => ((state.data?.pages.length ?? 0) > 2 ? false : 3_000),
  })
  const { data, hasNextPage, isFetching, isFetchNextPageError, fetchNextPage } = query
  const rows = useMemo(() => data?.pages.flatMap(({ items }) => items) ?? [], [data])
  const unanswered = data?.pages.flatMap((page) => page.unanswered) ?? []
  const columns = useMemo(() => columnsOf(broker.name), [broker.name])
  const isMore = hasNextPage && rows.length < CLIENTS_MAX

  // All of them are loaded, page by page, so that the length of the list does not jump while it is read. A page that failed would fail
  // again at once.
  useEffect(() => {
    if (isMore && !isFetching && !isFetchNextPageError) void fetchNextPage()
  }, [isMore, isFetching, isFetchNextPageError, fetchNextPage])

  const open = useCallback(
    ({ client_id }: Client) =>
      void navigate({
        to: '/b/$broker/clients/$client',
        params: { broker: broker.name, client: client_id },
      }),
    [navigate, broker.name],
  )
  const setSearch = (value: string) =>
    void navigate({ search: { search: value || undefined }, replace: true })
  return (
    <Page title="Clients" lead="Clients that are connected now.">
      {unanswered.length > 0 && (
        <Alert color="orange" mb="md" title="Clients may be missing">
          These servers did not answer in time: {[...new Set(unanswered)].join(', ')}.
        </Alert>
      )}
      <Panel isFlush>
        <Group justify="space-between" className={ui.tableBar}>
          <Search
            label="Search clients"
            placeholder="Client id or user begins with"
            value={search}
            onChange={setSearch}
          />
          <Text size="sm" c="dimmed" role="status">
            {data && `${count(rows.length)}${hasNextPage ? ' or more' : ''} connected`}
          </Text>
        </Group>
        <Loaded query={query} height={320}>
          {() =>
            rows.length === 0 ? (
              <NoClients search={wanted} broker={broker.name} />
            ) : (
              <>
                <Rows
                  label="Connected clients"
                  rows={rows}
                  columns={columns}
                  idOf={({ client_id }) => client_id}
                  hasOwnControl
                  reusesElements
                  onOpen={open}
                />
                {isFetchNextPageError && <RestFailed query={query} shown={rows.length} noun="clients" />}
              </>
            )
          }
        </Loaded>
      </Panel>
    </Page>
  )
}

function NoClients({ search, broker }: { search: string; broker: string }) {
  if (search !== '') {
    return (
      <Empty
        title={`No connected client begins with ${search}`}
        action={
          <Anchor
            component={Link}
            to="/b/$broker/clients/$client"
            params={{ broker, client: search } as never}
            size="sm"
          >
            Open the client with exactly this id
          </Anchor>
        }
      >
        The client may be offline with a stored session, or it may have been refused.
      </Empty>
    )
  }
  return (
    <Empty
      title="No client is connected"
      action={
        <Button component={Link} to={`/b/${broker}/connect`} variant="default" mt="xs">
          Connect a device
        </Button>
      }
    >
      A client appears here within a second of its CONNECT. If one is missing, look at{' '}
      <Anchor
        component={Link}
        to={`/b/${broker}/incidents`}
        search={{ kind: 'connect_refused' } as never}
        inherit
      >
        refused clients
      </Anchor>{' '}
      and{' '}
      <Anchor component={Link} to={`/b/${broker}/sessions`} inherit>
        offline sessions
      </Anchor>
      .
    </Empty>
  )
}
