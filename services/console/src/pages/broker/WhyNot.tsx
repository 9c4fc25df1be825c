import { Anchor, Group, Text, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { credentialQuery, namedQuery, replayQuery } from '../../api/access'
import { useBroker } from '../../api/brokers'
import { clientQuery, type Incident, incidentsQuery } from '../../api/live'
import { plural } from '../../lib/format'
import { KINDS, reasonText } from '../../lib/incidents'
import {
  type Change,
  connectPath,
  type Outcome,
  PACKETS,
  type Packet,
  packetOf,
  type Replay,
  type Step,
  topicPath,
} from '../../lib/whyNot'
import { Choice } from '../../ui/Choice'
import { Panel } from '../../ui/Page'
import { Loaded } from '../../ui/State'
import { Time, useNow } from '../../ui/Time'
import classes from './whyNot.module.css'

const INCIDENTS_LOOKED_AT = 200

/** The decision path of a client's last CONNECT, SUBSCRIBE or PUBLISH. */
export function WhyNot({ id }: { id: string }) {
  const { path } = useBroker()
  const { packet: asked, topic: named } = useSearch({ from: '/signed-in/b/$broker/clients/$client' })
  const navigate = useNavigate({ from: '/b/$broker/clients/$client' })
  const incidents = useQuery(incidentsQuery(path, { client_id: id }, INCIDENTS_LOOKED_AT))
  const connected = useQuery(clientQuery(path, id))
  const items = incidents.data?.items ?? []
  const latest = items.find((one) => packetOf(one) !== null)
  const packet = PACKETS.find((one) => one === asked) ?? (latest && packetOf(latest)) ?? 'connect'
  const refusal = refusalOf(items, packet, named)
  const change = (to: { packet?: Packet; topic?: string }) =>
    void navigate({ search: (before) => ({ ...before, ...to }), replace: true })
  const decided = (connection: Connection | null) => {
    const user = connection?.user ?? refusal?.user ?? null
    return (
      <>
        <Refusal refusal={refusal} packet={packet} />
        {packet === 'connect' ? (
          <OfConnect id={id} user={user} refusal={refusal} connection={connection} />
        ) : (
          <OfTopic
            key={packet}
            id={id}
            user={user}
            packet={packet}
            refusal={refusal}
            connection={connection}
            topic={named ?? topicOf(refusal) ?? ''}
            onTopic={(topic) => change({ packet, topic })}
          />
        )}
      </>
    )
  }

  return (
    <Panel
      title="Why not?"
      lead="The checks of the server in their order: which one refused the last packet, and what the rules say today."
      actions={
        <Choice
          label="Packet"
          data={PACKETS.map((value) => ({ value, label: value.toUpperCase() }))}
          value={packet}
          onChange={(value) => change({ packet: value as Packet, topic: undefined })}
        />
      }
    >
      <Loaded query={incidents} height={240}>
        {() => (
          <Loaded query={connected} height={240}>
            {decided}
          </Loaded>
        )}
      </Loaded>
    </Panel>
  )
}

/** The latest refusal of a packet; with a topic, of this topic. */
function refusalOf(items: Incident[], packet: Packet, topic: string | undefined): Incident | null {
  const fits = (one: Incident) =>
    packetOf(one) === packet && (!topic || one.kind === 'limit_reached' || one.what === topic)
  return items.find(fits) ?? null
}

const topicOf = (refusal: Incident | null) =>
  refusal?.kind === 'publish_refused' || refusal?.kind === 'subscribe_refused' ? refusal.what : null

function Refusal({ refusal, packet }: { refusal: Incident | null; packet: Packet }) {
  if (!refusal) {
    return (
      <Text size="sm" c="dimmed" mb="md">
        No {packet.toUpperCase()} of this client was refused in the last seven days. This is how one would be
        decided now.
      </Text>
    )
  }
  const { color, mark, label } = KINDS[refusal.kind]
  return (
    <Text size="sm" mb="md">
      <span style={{ color: `var(${color})` }}>{mark}</span> {label} <Time at={refusal.last_at_ms} />
      {refusal.what && (
        <>
          : <span className="mono">{refusal.what}</span>
        </>
      )}
      . {reasonText(refusal.reason)}
      {refusal.count > 1 && `, ${plural(refusal.count, 'time')}`}.
    </Text>
  )
}

interface Connection {
  user?: string | null
  method: string
  connected_at_ms: number
}

interface OfProps {
  id: string
  user: string | null
  refusal: Incident | null
  connection: Connection | null
}

function OfConnect({ id, user, refusal, connection }: OfProps) {
  const { path } = useBroker()
  const now = useNow()
  const bans = useQuery(namedQuery(path, 'bans'))
  // Any topic will do: only the obstacles of the answer are read.
  const replay = useQuery(replayQuery(path, { client_id: id, user, action: 'subscribe', topic: '#' }))
  return (
    <Loaded query={replay} height={200}>
      {([first]) => (
        <Loaded query={bans} height={200}>
          {({ items }) => {
            const obstacles = first?.answer.obstacles ?? []
            return (
              <Steps
                steps={connectPath({ refusal, connection, obstacles, bans: items, client: id, user, now })}
              />
            )
          }}
        </Loaded>
      )}
    </Loaded>
  )
}

interface OfTopicProps extends OfProps {
  packet: 'subscribe' | 'publish'
  topic: string
  onTopic: (topic: string) => void
}

function OfTopic({ id, user, packet, refusal, connection, topic, onTopic }: OfTopicProps) {
  const { broker, path } = useBroker()
  const [wanted] = useDebouncedValue(topic.trim(), 250)
  const credential = useQuery({ ...credentialQuery(path, user ?? ''), enabled: user !== null })
  const replay = useQuery({
    ...replayQuery(path, { client_id: id, user, action: packet, topic: wanted }),
    enabled: wanted !== '',
  })
  const label = packet === 'publish' ? 'Topic' : 'Topic filter'
  const stepsOf = (replays: Replay[]) =>
    user !== null && credential.isPending && !credential.isError ? (
      <Loaded query={credential} height={200}>
        {() => null}
      </Loaded>
    ) : (
      <Steps
        steps={topicPath({
          packet,
          topic: wanted === '' ? null : wanted,
          refusal,
          connection,
          isOverCap: broker.is_over_cap,
          replays,
          group: credential.data?.group ?? null,
          user,
        })}
      />
    )
  return (
    <>
      <Group align="flex-end" mb="md" gap="md">
        <TextInput
          label={label}
          placeholder={packet === 'publish' ? 'up/pump-7/state' : 'down/pump-7/#'}
          classNames={{ input: 'mono' }}
          value={topic}
          onChange={(event) => onTopic(event.currentTarget.value)}
          w={{ base: '100%', xs: 340 }}
        />
        <Anchor
          component={Link}
          to="/b/$broker/access"
          params={{ broker: broker.name } as never}
          search={
            { tab: 'test', client: id, user: user ?? undefined, action: packet, topic: wanted } as never
          }
          size="sm"
          mb={8}
        >
          Open in the access tester
        </Anchor>
      </Group>
      {wanted === '' ? (
        stepsOf([])
      ) : (
        <Loaded query={replay} height={200}>
          {stepsOf}
        </Loaded>
      )}
    </>
  )
}

const MARKS: Record<Outcome, { mark: string; said: string }> = {
  passed: { mark: '✓', said: 'Passed' },
  refused: { mark: '✕', said: 'Refused' },
  slowed: { mark: '▲', said: 'Slowed down' },
  unknown: { mark: '?', said: 'Not known' },
  'not reached': { mark: '–', said: 'Not reached' },
}

function Steps({ steps }: { steps: Step[] }) {
  return (
    <ol className={classes.steps} aria-label="Decision path">
      {steps.map(({ name, outcome, text, change }) => (
        <li key={name} data-outcome={outcome}>
          <span className={classes.mark} role="img" aria-label={MARKS[outcome].said}>
            {MARKS[outcome].mark}
          </span>
          <div className={classes.what}>
            <Text size="sm" fw={500} component="span">
              {name}
            </Text>
            <Text size="sm" c={outcome === 'refused' ? undefined : 'dimmed'} className={classes.text}>
              {text} {change && <ChangeLink change={change} />}
            </Text>
          </div>
        </li>
      ))}
    </ol>
  )
}

function ChangeLink({ change: { label, page, tab, edit } }: { change: Change }) {
  const { broker, can } = useBroker()
  // The editors open only for those who may save.
  const search =
    page === 'sessions' ? { session: edit } : { tab, edit: can('access:write') ? edit : undefined }
  return (
    <Anchor
      component={Link}
      to={`/b/$broker/${page}`}
      params={{ broker: broker.name } as never}
      search={search as never}
      inherit
    >
      {label}
    </Anchor>
  )
}
