import { Badge, Button, Group, Text, Title } from '@mantine/core'
import { IconPlus } from '@tabler/icons-react'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { brokersQuery, type PlacedBroker } from '../api/brokers'
import { api, body } from '../api/client'
import { useDevices } from '../api/live'
import { may, useMe } from '../api/session'
import type { Metrics } from '../charts/metrics'
import { rates } from '../charts/rates'
import { Sparkline } from '../charts/Sparkline'
import { brokersFound } from '../lib/brokerSearch'
import { count, si } from '../lib/format'
import { Page } from '../ui/Page'
import { Search } from '../ui/Search'
import { Empty, Failure, Loaded } from '../ui/State'
import classes from './brokers.module.css'

/** Brokers that are shown with their numbers; the search finds the others. */
const CARDS_MAX = 24
const LOOK_MS = 5_000
const FIRST_LOOK_MS = 2_500
const SAMPLES = 24

/** All brokers. */
export function Brokers() {
  const query = useQuery(brokersQuery)
  const me = useMe()
  const canCreate = me.organisations.some(({ role }) => may(role, 'brokers:write'))
  const create = canCreate && (
    <Button component={Link} to="/brokers/new" leftSection={<IconPlus size={16} />}>
      Create broker
    </Button>
  )
  return (
    <Page title="Brokers" actions={query.data?.length !== 0 && create}>
      <Loaded query={query}>
        {(brokers) =>
          brokers.length === 0 ? (
            <Empty title="No broker yet" action={create || undefined}>
              A broker is what your devices connect to: it has its own clients, credentials and messages,
              apart from all others.
            </Empty>
          ) : (
            <Cards brokers={brokers} />
          )
        }
      </Loaded>
    </Page>
  )
}

/** A page with more brokers than cards has a search. */
function Cards({ brokers }: { brokers: PlacedBroker[] }) {
  const [search, setSearch] = useState('')
  const isMany = brokers.length > CARDS_MAX
  const found = isMany ? brokersFound(brokers, search) : brokers
  return (
    <>
      {isMany && (
        <Search
          label="Search brokers"
          placeholder="Name contains"
          value={search}
          onChange={setSearch}
          mb="md"
        />
      )}
      <div className={classes.cards}>
        {found.slice(0, CARDS_MAX).map((broker) => (
          <BrokerCard key={broker.name} broker={broker} />
        ))}
      </div>
      {isMany && (
        <Text size="sm" c="dimmed" mt="md" role="status">
          {found.length === 0 && `No broker's name contains ${search}.`}
          {found.length > CARDS_MAX &&
            `${count(found.length - CARDS_MAX)} more. Type part of a name above to find them.`}
        </Text>
      )}
    </>
  )
}

function BrokerCard({ broker }: { broker: PlacedBroker }) {
  const { organisation, name, display_name } = broker
  const query = useQuery({
    queryKey: ['b', name, 'card'],
    queryFn: async ({ client, queryKey, signal }): Promise<Metrics[]> => {
      const path = { organisation, broker: name }
      const now = await body(
        api.GET('/organisations/{organisation}/brokers/{broker}/metrics', { params: { path }, signal }),
      )
      const before = client.getQueryData<Metrics[]>(queryKey) ?? []
      return [...before, now].slice(-SAMPLES)
    },
    // A rate needs two samples.
    refetchInterval: ({ state }) => ((state.data?.length ?? 0) < 2 ? FIRST_LOOK_MS : LOOK_MS),
  })
  const samples = query.data ?? []
  const last = samples.at(-1)
  const { devices } = useDevices({ organisation, broker: name }, last?.connections, 'card')
  const rate = rates(samples, ({ messages_in }) => messages_in)
  const link = (
    <Link to="/b/$broker" params={{ broker: name }} className={classes.card}>
      <Group justify="space-between" wrap="nowrap" gap="xs">
        <Title order={2} className={classes.name}>
          {display_name}
        </Title>
        <State broker={broker} />
      </Group>
      <Text size="xs" c="dimmed" className="mono">
        {name}
      </Text>
      <Sparkline values={rate} label="Messages a second over the last two minutes" />
      <Group gap="4px 16px" aria-busy={query.isPending || undefined}>
        <Text size="sm">
          <b>{devices === null ? '–' : count(devices)}</b> <span className={classes.soft}>connections</span>
        </Text>
        <Text size="sm">
          <b>{rate.at(-1) == null ? '–' : si(rate.at(-1) ?? 0)}</b>{' '}
          <span className={classes.soft}>messages/s</span>
        </Text>
        <Text size="sm">
          <b>{last ? si(last.stored_messages) : '–'}</b> <span className={classes.soft}>stored</span>
        </Text>
      </Group>
    </Link>
  )
  if (!query.isError || query.data) return link
  return (
    <div>
      {link}
      <Failure error={query.error} retry={() => void query.refetch()} />
    </div>
  )
}

function State({ broker }: { broker: PlacedBroker }) {
  if (broker.suspended)
    return (
      <Badge color="orange" variant="light" tt="none">
        Suspended
      </Badge>
    )
  if (broker.is_over_cap)
    return (
      <Badge color="red" variant="light" tt="none">
        Spend cap reached
      </Badge>
    )
  return (
    <Badge color="green" variant="light" tt="none" fw={500}>
      Running
    </Badge>
  )
}
