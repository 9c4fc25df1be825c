import { Anchor, Button, Text } from '@mantine/core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { addBan, deleteNamed } from '../../api/access'
import { useBroker } from '../../api/brokers'
import type { Schemas } from '../../api/client'
import { clientQuery, disconnectClient, incidentsQuery, sessionQuery } from '../../api/live'
import { isMissing } from '../../api/problem'
import { bytes, count, duration, legible, plural } from '../../lib/format'
import { banName } from '../../lib/names'
import live from '../../live/live.module.css'
import { Confirm } from '../../ui/Confirm'
import { IncidentTable } from '../../ui/IncidentTable'
import { KeptSession } from '../../ui/Losses'
import { done } from '../../ui/notify'
import { Page, Panel } from '../../ui/Page'
import { Facts } from '../../ui/Stat'
import { Empty, Loaded } from '../../ui/State'
import { TabPanels } from '../../ui/TabPanels'
import { Time } from '../../ui/Time'
import ui from '../../ui/ui.module.css'
import { undoable } from '../../ui/undo'
import { SessionDetails } from './SessionDetails'
import { Trace } from './Trace'
import { WhyNot } from './WhyNot'

/** Between the heights with and without a connection, so that neither moves a narrow page far. */
const CONNECTION_PX = 260

const INCIDENTS_SHOWN = 50
const FILTERS_SHOWN = 200

/** A client: its connection, its session and its refusals. */
export function Client() {
  const { client: id } = useParams({ from: '/signed-in/b/$broker/clients/$client' })
  const { tab } = useSearch({ from: '/signed-in/b/$broker/clients/$client' })
  const navigate = useNavigate({ from: '/b/$broker/clients/$client' })
  return (
    <Page title={id} lead={<State id={id} />} actions={<Actions id={id} />}>
      <TabPanels tabs={TABS} value={tab} onChange={(tab) => void navigate({ search: { tab } })} />
    </Page>
  )
}

function Overview() {
  const { client: id } = useParams({ from: '/signed-in/b/$broker/clients/$client' })
  return (
    <>
      <div className={`${ui.two} ${ui.twoBottom}`}>
        <Connection id={id} />
        <Kept id={id} />
      </div>
      <WhyNot id={id} />
      <Incidents id={id} />
    </>
  )
}

const TABS = [
  { value: 'overview', label: 'Overview', part: Overview },
  { value: 'trace', label: 'Trace', part: Trace },
]

function State({ id }: { id: string }) {
  const { path } = useBroker()
  const { data, isError } = useQuery(clientQuery(path, id))
  const isConnected = Boolean(data)
  const unknown = isError ? 'Connection state unknown' : 'Looking for the connection'
  return (
    <span className={live.status}>
      <span className={live.dot} data-kind={isConnected ? 'connected' : 'away'} aria-hidden="true" />
      {isConnected ? 'Connected' : data === null ? 'Not connected' : unknown}
    </span>
  )
}

function Actions({ id }: { id: string }) {
  const { path, can } = useBroker()
  const client = useQueryClient()
  const reload = () => client.invalidateQueries({ queryKey: ['b', path.broker] })
  const connected = useQuery(clientQuery(path, id))
  if (!can('clients:write')) return null
  // A button that came later would push the page down in a narrow window.
  const isConnected = Boolean(connected.data) && !connected.isError
  return (
    <>
      <Confirm
        verb="Disconnect"
        title={`Disconnect ${id}?`}
        loses={
          <>
            The connection is closed. Most clients connect again by themselves; ban the client to keep it out.{' '}
            <KeptSession id={id} />
          </>
        }
        act={() => disconnectClient(path, id)}
        onDone={() => {
          done(`${id} was disconnected.`)
          void reload()
        }}
      >
        {(open) => (
          <Button variant="default" onClick={open} disabled={!isConnected}>
            Disconnect
          </Button>
        )}
      </Confirm>
      {can('access:write') && (
        <Confirm
          verb="Ban"
          title={`Ban ${id}?`}
          loses={
            <>
              It is disconnected, and refused until the ban is removed under Access. <KeptSession id={id} />
            </>
          }
          act={() => addBan(path, banName(id), { client_id: id, reason: 'banned in the console' })}
          onDone={() => {
            undoable(`${id} is banned.`, {
              act: () => deleteNamed(path, 'bans', banName(id)),
              said: `${id} may connect again.`,
              onDone: reload,
            })
            void reload()
          }}
        >
          {(open) => (
            <Button variant="default" onClick={open}>
              Ban
            </Button>
          )}
        </Confirm>
      )}
    </>
  )
}

/** How a client was authenticated, as people read it. */
export function methodText(method: string): string {
  const [kind, name] = method.split(/:(.*)/)
  const said: Record<string, string> = {
    password: 'user and password',
    token: `token of ${name}`,
    certificate: `certificate of ${name}`,
    webhook: 'the access webhook',
    anonymous: 'nothing: the broker allows anonymous clients',
    settings: 'the settings of the server',
  }
  return said[kind ?? ''] ?? method
}

function Connection({ id }: { id: string }) {
  const { path } = useBroker()
  const query = useQuery(clientQuery(path, id))
  return (
    <Panel title="Connection">
      {query.data === null ? (
        <Empty title="No connection" action={<To page="connect">Connect a device</To>}>
          The broker has no connection with this client id. If it was refused, the reason is below.
        </Empty>
      ) : (
        <Loaded query={query} height={CONNECTION_PX}>
          {(client) =>
            client && (
              <Facts
                rows={[
                  ['Connected', <Time key="at" at={client.connected_at_ms} />],
                  ['Address', client.address ?? 'not known'],
                  ['User', client.user == null ? 'none' : legible(client.user)],
                  ['Authenticated by', methodText(client.method)],
                  ['Protocol', `MQTT ${client.protocol}`],
                  ['Keep alive', client.keep_alive_s === 0 ? 'none' : duration(client.keep_alive_s)],
                  ['Subscriptions', count(client.subscriptions)],
                  ['Unacknowledged', `${plural(client.unacknowledged_messages, 'message')} with QoS 1 or 2`],
                  [
                    'Waiting in memory',
                    `${plural(client.waiting_messages, 'message')}, ${bytes(client.waiting_bytes)}`,
                  ],
                  ['Send buffer', bytes(client.unsent_bytes)],
                  ['Last packet', <Time key="last" at={client.last_packet_at_ms} />],
                  ['Published', `${plural(client.messages_in, 'message')}, ${bytes(client.bytes_in)}`],
                  ['Delivered', `${plural(client.messages_out, 'message')}, ${bytes(client.bytes_out)}`],
                ]}
              />
            )
          }
        </Loaded>
      )}
    </Panel>
  )
}

/** Subscriptions of a connected client that are in the memory of the server alone. */
function Filters({ client: data }: { client: Schemas['ClientDetails'] }) {
  if (data.subscriptions === 0) return null
  const shown = data.filters.slice(0, FILTERS_SHOWN)
  return (
    <>
      <Text fw={600} size="sm" mt="lg" mb={4}>
        {plural(data.subscriptions, 'subscription')}
      </Text>
      <Facts
        rows={shown.map(({ filter, qos }) => [
          <span key={filter} className="mono">
            {filter}
          </span>,
          `QoS ${qos}`,
        ])}
      />
      {data.subscriptions > shown.length && (
        <Text size="xs" c="dimmed">
          {count(data.subscriptions - shown.length)} more are not shown.
        </Text>
      )}
    </>
  )
}

function Kept({ id }: { id: string }) {
  const { path } = useBroker()
  const query = useQuery(sessionQuery(path, id))
  const { data: client } = useQuery(clientQuery(path, id))
  return (
    <Panel title="Session">
      {isMissing(query.error) ? (
        <>
          <Empty title="No stored session" action={<To page="sessions">See the stored sessions</To>}>
            The server stores the session of a client that connects with a session expiry, or without clean
            session before MQTT 5.0.
          </Empty>
          {client && <Filters client={client} />}
        </>
      ) : (
        <Loaded query={query}>{(session) => <SessionDetails session={session} />}</Loaded>
      )}
    </Panel>
  )
}

function Incidents({ id }: { id: string }) {
  const { broker, path } = useBroker()
  const query = useQuery(incidentsQuery(path, { client_id: id }, INCIDENTS_SHOWN))
  return (
    <Panel isFlush title="Incidents" lead="Refused packets and lost messages of this client.">
      <Loaded query={query}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty
              title="No incident in the last seven days"
              action={<To page="incidents">See all incidents</To>}
            >
              Refused connects, publishes and subscriptions are listed here with their reason.
            </Empty>
          ) : (
            <IncidentTable broker={broker.name} rows={items} isOfOneClient />
          )
        }
      </Loaded>
    </Panel>
  )
}

/** A link to another page of the broker. */
function To({ page, children }: { page: string; children: string }) {
  const { broker } = useBroker()
  return (
    <Anchor component={Link} to={`/b/${broker.name}/${page}`} size="sm">
      {children}
    </Anchor>
  )
}
