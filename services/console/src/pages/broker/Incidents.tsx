import { Button, Group, Select } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useBroker } from '../../api/brokers'
import { type IncidentKind, incidentsQuery } from '../../api/live'
import { KIND_NAMES, KINDS } from '../../lib/incidents'
import { IncidentTable } from '../../ui/IncidentTable'
import { Page, Panel } from '../../ui/Page'
import { Search } from '../../ui/Search'
import { Empty, Loaded } from '../../ui/State'
import ui from '../../ui/ui.module.css'

/** The API stores this many incidents of a broker at most. */
const ROWS_MAX = 1000

/** Refusals, drops and reached limits, with their reasons. */
export function Incidents() {
  const { broker, path } = useBroker()
  const { kind: asked, client } = useSearch({ from: '/signed-in/b/$broker/incidents' })
  const navigate = useNavigate({ from: '/b/$broker/incidents' })
  const kind = KIND_NAMES.find((one) => one === asked)
  const [client_id] = useDebouncedValue(client, 200)
  const query = useQuery({
    ...incidentsQuery(path, { kind, client_id }, ROWS_MAX),
    placeholderData: keepPreviousData,
  })
  const change = (to: { kind?: string; client?: string }) =>
    void navigate({ search: (before) => ({ ...before, ...to }), replace: true })
  const isFiltered = kind !== undefined || client !== undefined
  return (
    <Page
      title="Incidents"
      lead="Packets that were refused, dropped or limited in the last seven days (at most 1,000), with the reason. Identical incidents are counted together."
    >
      <Panel isFlush>
        <Group className={ui.tableBar} gap="sm">
          <Search
            label="Client id"
            placeholder="Client id"
            value={client ?? ''}
            onChange={(client) => change({ client: client || undefined })}
            w={{ base: '100%', xs: 258 }}
          />
          <Select
            aria-label="Kind"
            placeholder="All kinds"
            clearable
            data={KIND_NAMES.map((value) => ({ value, label: KINDS[value].label }))}
            value={kind ?? null}
            w={{ base: '100%', xs: 258 }}
            onChange={(value) => change({ kind: (value as IncidentKind | null) ?? undefined })}
          />
        </Group>
        <Loaded query={query} height={320}>
          {({ items }) =>
            items.length === 0 ? (
              <Empty
                title={isFiltered ? 'No incident of this kind and client' : 'Nothing was refused or dropped'}
                action={
                  isFiltered ? (
                    <Button variant="default" onClick={() => change({ kind: undefined, client: undefined })}>
                      Show all incidents
                    </Button>
                  ) : (
                    <Button component={Link} to={`/b/${broker.name}/settings`} variant="default">
                      See the limits of this broker
                    </Button>
                  )
                }
              >
                {isFiltered
                  ? 'The whole client id must match.'
                  : 'When a client is refused or a limit is reached, the reason is listed here within ten seconds.'}
              </Empty>
            ) : (
              <IncidentTable broker={broker.name} rows={items} rowsShown={16} />
            )
          }
        </Loaded>
      </Panel>
    </Page>
  )
}
