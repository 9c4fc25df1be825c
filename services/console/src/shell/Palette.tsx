import { useMantineColorScheme } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import type { SpotlightActionData } from '@mantine/spotlight'
import {
  IconAlertTriangle,
  IconBinaryTree2,
  IconBuilding,
  IconDevices,
  IconKey,
  IconLayoutGrid,
  IconLogout,
  IconMoon,
  IconPlus,
  IconUser,
} from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { brokerQuery, brokersQuery, useNamedBroker } from '../api/brokers'
import { clientsPage, topicLevelsQuery } from '../api/live'
import { meQuery, signOut } from '../api/session'
import { legible, plural } from '../lib/format'
import { failed } from '../ui/notify'
import { accessOffers, mayCreateBroker } from './offers'
import { type Group, PaletteDialog } from './PaletteDialog'
import { PAGES } from './pages'

const CLIENTS_SHOWN = 6

/** Finds brokers, clients, topics, pages and actions. */
export function Palette({ close }: { close: () => void }) {
  const [query, setQuery] = useState('')
  const broker = useNamedBroker()
  const clients = useClients(broker, query)
  const groups = [
    clients,
    usePages(broker),
    useBrokers(),
    useAccess(broker),
    useOrganisationPages(broker),
    useActions(),
    useTopics(broker, query),
    useTyped(broker, query, clients.isSettled),
  ]
  return (
    <PaletteDialog
      close={close}
      query={query}
      onQuery={setQuery}
      groups={groups}
      placeholder="Brokers, clients, topics, pages, actions"
    />
  )
}

/** `isSettled`: the server has answered for what is typed. */
function useClients(broker: string | undefined, query: string): Group & { isSettled: boolean } {
  const navigate = useNavigate()
  const [search] = useDebouncedValue(query.trim(), 150)
  const { data: place } = useQuery({ ...brokerQuery(broker ?? ''), enabled: broker !== undefined })
  const { data, isFetching } = useQuery({
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
      label: legible(client_id),
      description: user ? `Client, user ${legible(user)}` : 'Client',
      keywords: [query],
      leftSection: <IconDevices size={18} stroke={1.6} />,
      onClick: () =>
        void navigate({
          to: '/b/$broker/clients/$client',
          params: { broker: broker ?? '', client: client_id },
        }),
    }),
  )
  return { group: 'Clients', actions, isSettled: search === query.trim() && !isFetching }
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

/** Tabs of the access page, and the form of a new credential for those who may create one. */
function useAccess(broker: string | undefined): Group {
  const navigate = useNavigate()
  const { data: place } = useQuery({ ...brokerQuery(broker ?? ''), enabled: broker !== undefined })
  if (!broker) return { group: 'Access', actions: [] }
  const actions = accessOffers(place?.role).map(
    ({ id, label, tab, edit }): SpotlightActionData => ({
      id,
      label,
      description: 'Access',
      leftSection: edit ? <IconPlus size={18} stroke={1.6} /> : <IconKey size={18} stroke={1.6} />,
      onClick: () => void navigate({ to: '/b/$broker/access', params: { broker }, search: { tab, edit } }),
    }),
  )
  return { group: 'Access', actions }
}

const ORGANISATION = [
  ['members', 'Members'],
  ['invitations', 'Invitations'],
  ['tokens', 'API tokens'],
  ['audit', 'Audit log'],
  ['usage', 'Usage of the organisation'],
  ['export', 'Export the organisation'],
  ['settings', 'Settings of the organisation'],
] as const

/** Tabs of the organisation: that of the broker, else the first one. */
function useOrganisationPages(broker: string | undefined): Group {
  const navigate = useNavigate()
  const { data: me } = useQuery(meQuery)
  const { data: place } = useQuery({ ...brokerQuery(broker ?? ''), enabled: broker !== undefined })
  const organisation = me?.organisations.find(({ id }) => id === place?.organisation) ?? me?.organisations[0]
  if (!organisation) return { group: 'Organisation', actions: [] }
  const actions = ORGANISATION.map(
    ([tab, label]): SpotlightActionData => ({
      id: `organisation ${tab}`,
      label,
      description: organisation.name,
      leftSection: <IconBuilding size={18} stroke={1.6} />,
      onClick: () =>
        void navigate({
          to: '/org/$organisation',
          params: { organisation: organisation.id },
          search: { tab },
        }),
    }),
  )
  return { group: 'Organisation', actions }
}

const TOPICS_SHOWN = 6

/** Levels of retained topics that begin with what was typed. */
function useTopics(broker: string | undefined, query: string): Group {
  const navigate = useNavigate()
  const [typed] = useDebouncedValue(query.trim(), 150)
  const { data: place } = useQuery({ ...brokerQuery(broker ?? ''), enabled: broker !== undefined })
  const path = { organisation: place?.organisation ?? '', broker: broker ?? '' }
  const slash = typed.lastIndexOf('/')
  const { data } = useQuery({
    ...topicLevelsQuery(path, slash < 0 ? undefined : typed.slice(0, slash)),
    enabled: place !== undefined && typed !== '',
  })
  const found = typed === '' ? [] : (data?.items ?? []).filter(({ topic }) => topic.startsWith(typed))
  const actions = found.slice(0, TOPICS_SHOWN).map(
    ({ topic, has_message, retained_messages, is_more }): SpotlightActionData => ({
      id: `topic ${topic}`,
      label: topic,
      description: has_message
        ? 'Topic with a retained message'
        : `${plural(retained_messages, 'retained message')}${is_more ? ' or more' : ''} below`,
      keywords: [query],
      leftSection: <IconBinaryTree2 size={18} stroke={1.6} />,
      onClick: () =>
        void navigate({
          to: '/b/$broker/topics',
          params: { broker: path.broker },
          search: has_message ? { topic } : { filter: `${topic}/#` },
        }),
    }),
  )
  return { group: 'Topics', actions }
}

/** The typed text as a topic or a client id. It comes with the clients that were found, so that what is
 * selected does not change under the reader's hands. */
function useTyped(broker: string | undefined, query: string, isSettled: boolean): Group {
  const navigate = useNavigate()
  const typed = query.trim()
  if (!broker || typed === '' || !isSettled) return { group: 'Look up', actions: [] }
  const asTopic: SpotlightActionData = {
    id: 'typed topic',
    label: `Topic ${typed}`,
    description: 'Its last message, and for whom it is stored',
    keywords: [query],
    leftSection: <IconBinaryTree2 size={18} stroke={1.6} />,
    onClick: () => void navigate({ to: '/b/$broker/topics', params: { broker }, search: { topic: typed } }),
  }
  const asClient: SpotlightActionData = {
    id: 'typed client',
    label: `Why was ${typed} refused?`,
    description: 'The client with exactly this id',
    keywords: [query],
    leftSection: <IconAlertTriangle size={18} stroke={1.6} />,
    onClick: () => void navigate({ to: '/b/$broker/clients/$client', params: { broker, client: typed } }),
  }
  // Enter opens the first: most topics have levels, and few client ids have a slash.
  const actions = typed.includes('/') ? [asTopic, asClient] : [asClient, asTopic]
  return { group: 'Look up', actions }
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
  const client = useQueryClient()
  const { data: me } = useQuery(meQuery)
  const { toggleColorScheme } = useMantineColorScheme()
  const createBroker: SpotlightActionData = {
    id: 'create broker',
    label: 'Create broker',
    leftSection: <IconPlus size={18} stroke={1.6} />,
    onClick: () => void navigate({ to: '/brokers/new' }),
  }
  const actions: SpotlightActionData[] = [
    ...(mayCreateBroker(me) ? [createBroker] : []),
    {
      id: 'create organisation',
      label: 'Create organisation',
      leftSection: <IconPlus size={18} stroke={1.6} />,
      onClick: () => void navigate({ to: '/org/new' }),
    },
    {
      id: 'account',
      label: 'Account',
      description: 'Name and password',
      leftSection: <IconUser size={18} stroke={1.6} />,
      onClick: () => void navigate({ to: '/me' }),
    },
    {
      id: 'all brokers',
      label: 'All brokers',
      leftSection: <IconLayoutGrid size={18} stroke={1.6} />,
      onClick: () => void navigate({ to: '/', search: { all: true } }),
    },
    {
      id: 'theme',
      label: 'Change the theme',
      description: 'Light or dark',
      leftSection: <IconMoon size={18} stroke={1.6} />,
      onClick: toggleColorScheme,
    },
    {
      id: 'sign out',
      label: 'Sign out',
      leftSection: <IconLogout size={18} stroke={1.6} />,
      onClick: () => void signOut(client).catch(failed),
    },
  ]
  return { group: 'Actions', actions }
}
