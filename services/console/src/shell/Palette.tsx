import {
  createSpotlight,
  Spotlight,
  type SpotlightActionData,
  type SpotlightActionGroupData,
} from '@mantine/spotlight'
import '@mantine/spotlight/styles.layer.css'
import { useDebouncedValue } from '@mantine/hooks'
import { IconDevices, IconLayoutGrid, IconPlus, IconSearch, IconUser } from '@tabler/icons-react'
import { useQuery } from '@tanstack/react-query'
import { useNavigate, useParams } from '@tanstack/react-router'
import { type KeyboardEvent, useEffect, useState } from 'react'
import { brokerQuery, brokersQuery } from '../api/brokers'
import { clientsPage } from '../api/live'
import { PAGES } from './pages'

const CLIENTS_SHOWN = 6
const [store, spotlight] = createSpotlight()

/** Enter opens the first thing that was found, unless the arrows have chosen another one. */
function openFirst(event: KeyboardEvent) {
  if (event.key !== 'Enter' || document.querySelector('[data-action][data-selected]')) return
  event.preventDefault()
  document.querySelector<HTMLElement>('[data-action]')?.click()
}

/** Finds brokers, clients, pages and actions. */
export function Palette({ close }: { close: () => void }) {
  const [query, setQuery] = useState('')
  useEffect(() => spotlight.open(), [])
  const { broker } = useParams({ strict: false })
  const groups = [useClients(broker, query), usePages(broker), useBrokers(), useActions()]
  return (
    <Spotlight
      store={store}
      onSpotlightClose={close}
      query={query}
      onQueryChange={setQuery}
      actions={groups.filter(({ actions }) => actions.length > 0)}
      nothingFound="Nothing of this name"
      highlightQuery
      scrollable
      maxHeight={420}
      shortcut={null}
      searchProps={{
        leftSection: <IconSearch size={18} />,
        placeholder: 'Brokers, clients, pages, actions',
        'aria-label': 'Search',
        onKeyDown: openFirst,
      }}
    />
  )
}

type Group = SpotlightActionGroupData

function useClients(broker: string | undefined, query: string): Group {
  const navigate = useNavigate()
  const [search] = useDebouncedValue(query.trim(), 150)
  const { data: place } = useQuery({ ...brokerQuery(broker ?? ''), enabled: broker !== undefined })
  const { data } = useQuery({
    queryKey: ['b', broker, 'clients', 'palette', search],
    enabled: place !== undefined && search !== '',
    queryFn: ({ signal }) =>
      clientsPage(
        { organisation: place?.organisation ?? '', broker: broker ?? '' },
        search,
        undefined,
        CLIENTS_SHOWN,
        signal,
      ),
  })
  const actions = (search === '' ? [] : (data?.items ?? [])).map(
    ({ client_id, user }): SpotlightActionData => ({
      id: `client ${client_id}`,
      label: client_id,
      description: user ? `Client, user ${user}` : 'Client',
      keywords: [query],
      leftSection: <IconDevices size={18} stroke={1.6} />,
      onClick: () =>
        void navigate({
          to: '/b/$broker/clients/$client',
          params: { broker: broker ?? '', client: client_id },
        }),
    }),
  )
  return { group: 'Clients', actions }
}

function usePages(broker: string | undefined): Group {
  const navigate = useNavigate()
  if (!broker) return { group: 'Pages', actions: [] }
  const actions = PAGES.map(
    ({ path, label, key, icon: Icon }): SpotlightActionData => ({
      id: `page ${path}`,
      label,
      description: `g ${key}`,
      leftSection: <Icon size={18} stroke={1.6} />,
      onClick: () =>
        void navigate({ to: path === '/' ? '/b/$broker' : `/b/$broker${path}`, params: { broker } }),
    }),
  )
  return { group: 'Pages', actions }
}

function useBrokers(): Group {
  const navigate = useNavigate()
  const { data: brokers = [] } = useQuery(brokersQuery)
  const actions = brokers.map(
    ({ name, display_name }): SpotlightActionData => ({
      id: `broker ${name}`,
      label: display_name,
      description: display_name === name ? 'Broker' : `Broker ${name}`,
      leftSection: <IconLayoutGrid size={18} stroke={1.6} />,
      onClick: () => void navigate({ to: '/b/$broker', params: { broker: name } }),
    }),
  )
  return { group: 'Brokers', actions }
}

function useActions(): Group {
  const navigate = useNavigate()
  const actions: SpotlightActionData[] = [
    {
      id: 'create broker',
      label: 'Create broker',
      leftSection: <IconPlus size={18} stroke={1.6} />,
      onClick: () => void navigate({ to: '/brokers/new' }),
    },
    {
      id: 'account',
      label: 'Account',
      description: 'Name and password',
      leftSection: <IconUser size={18} stroke={1.6} />,
      onClick: () => void navigate({ to: '/me' }),
    },
  ]
  return { group: 'Actions', actions }
}
