import { Anchor, Progress, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { Sparkline } from '../charts/Sparkline'
import { bytes, count, plural, si } from '../lib/format'
import { Page, Panel } from '../ui/Page'
import { type Column, Rows } from '../ui/Rows'
import { Facts, Stat, Stats } from '../ui/Stat'
import { Empty, Loaded } from '../ui/State'
import { Time, useNow } from '../ui/Time'
import ui from '../ui/ui.module.css'
import { usedColumns } from '../ui/usedColumns'
import { Mark } from './Mark'
import type { Numbers, Share } from './numbers'
import { Pods } from './Pods'
import { type LoudTenant, loudestQuery, numbersQuery, type OwnPod, podQuery } from './queries'

/** Whether the region is healthy, which tenants are loud, and what runs out next. The pod `self` is a server without other pods. */
export function Overview() {
  const numbers = useQuery(numbersQuery)
  const pod = useQuery(podQuery)
  return (
    <Page
      title="Overview"
      lead={
        pod.data?.name === 'self'
          ? 'The health of this server, and the tenants that use it most.'
          : 'Numbers, health and headroom describe the pod that serves this page. The lists of pods and tenants cover the whole region.'
      }
    >
      <div className={ui.statsPlace}>
        <Loaded query={numbers} height={110}>
          {(found) => <Headline numbers={found} />}
        </Loaded>
      </div>
      <Loaded query={pod} height={200}>
        {(found) => <Pods own={found} />}
      </Loaded>
      <div className={`${ui.two} ${ui.twoBottom}`}>
        <Panel title="Health of this pod">
          <Loaded query={pod} height={220}>
            {(found) => <Health pod={found} numbers={numbers.data} />}
          </Loaded>
        </Panel>
        <Panel title="Headroom" lead="Use of this pod, as a share of its limits.">
          <Loaded query={numbers} height={220}>
            {(found) => <Headroom numbers={found} />}
          </Loaded>
        </Panel>
      </div>
      <LoudestTenants />
    </Page>
  )
}

const milliseconds = (seconds: number) => (seconds * 1000).toFixed(1)

function Headline({ numbers }: { numbers: Numbers }) {
  const { connections, published, commit, waiting } = numbers
  const connected = connections.at(-1)
  const rate = published.at(-1)
  const commitS = commit.at(-1)
  const waits = waiting.at(-1)
  return (
    <Stats>
      <Stat
        label="Connections"
        value={connected == null ? '–' : count(connected)}
        note={<Sparkline values={connections} label="Connections in the last minutes" />}
      />
      <Stat
        label="Published"
        value={rate == null ? '–' : si(rate)}
        unit="messages/s"
        note={<Sparkline values={published} label="Messages a second in the last minutes" />}
      />
      <Stat
        label="Commit time, p99"
        value={commitS == null ? '–' : milliseconds(commitS)}
        unit="ms"
        note={<Sparkline values={commit} label="Time to commit a message in the last minutes" />}
      />
      <Stat
        label="Queued for the store"
        value={waits == null ? '–' : bytes(waits)}
        note={<Sparkline values={waiting} label="Bytes queued for the store in the last minutes" />}
      />
    </Stats>
  )
}

/** By the value of the metric millrace_memory_pressure. */
const PRESSURES = [
  'none',
  'high: QoS 0 messages are dropped',
  'high: QoS 0 messages are dropped, new connections are refused',
  'critical: QoS 0 messages are dropped, new connections are refused, publishers are slowed down',
]

function Health({ pod, numbers }: { pod: OwnPod; numbers: Numbers | undefined }) {
  const rows: [ReactNode, ReactNode][] = [
    [
      'Clients',
      pod.problem ? (
        <Mark key="bad" color={pod.is_draining ? 'warn' : 'bad'}>
          {pod.is_draining ? 'disconnected and refused, because an operator drains this pod' : pod.problem}
        </Mark>
      ) : (
        <Mark key="good" color="good">
          accepted
        </Mark>
      ),
    ],
    [
      'Delivery',
      numbers?.deliveryS == null
        ? 'no message was delivered since this page was opened'
        : `99 % of messages within ${milliseconds(numbers.deliveryS)} ms, in the last minute`,
    ],
    ['Store', numbers ? <Store key="store" numbers={numbers} /> : '–'],
    ['Last start', <LastStart key="start" pod={pod} />],
    ['Link to other pods', <FabricState key="fabric" pod={pod} />],
    ['Gateway', <Gateway key="gateway" pod={pod} refused={numbers?.headersRefused ?? 0} />],
    ['Memory pressure', PRESSURES[numbers?.pressure ?? 0] ?? '–'],
    [
      'Version',
      <span key="version" className="mono">
        {pod.version}
      </span>,
    ],
  ]
  return <Facts rows={rows} />
}

function Store({ numbers: { store } }: { numbers: Numbers }) {
  if (store.failures === null && store.refused === null)
    return 'No store: a restart loses all sessions and messages.'
  const failures = store.failures ?? 0
  const said = [
    plural(failures, 'failure'),
    `${plural(store.refused ?? 0, 'transaction')} refused`,
    plural(store.stalls ?? 0, 'stall'),
  ].join(', ')
  return <Mark color={failures > 0 ? 'warn' : 'good'}>{said} since the start</Mark>
}

function LastStart({ pod: { started_at_ms, recovery } }: { pod: OwnPod }) {
  return (
    <>
      <Time at={started_at_ms} />
      {!recovery && '. The data is in a cluster, which recovers by itself.'}
      {recovery &&
        recovery.acknowledged_commit == null &&
        ', with a data folder in which no commit was acknowledged'}
      {recovery?.acknowledged_commit != null && <Recovered of={recovery} />}
    </>
  )
}

function Recovered({ of }: { of: NonNullable<OwnPod['recovery']> }) {
  const lost = of.acknowledged_commits_lost ?? 0
  return (
    <>
      <div>
        <Mark color={lost === 0 ? 'good' : 'bad'}>{plural(lost, 'acknowledged commit')} lost</Mark>: commit{' '}
        {count(of.acknowledged_commit ?? 0)} was the last one recorded as acknowledged; the data folder has
        all commits up to {count(of.recovered_commit)}.
      </div>
      {of.journal_commits > 0 && (
        <div>The checksums of {plural(of.journal_commits, 'commit')} in the journals were right.</div>
      )}
      {of.cut_bytes > 0 && (
        <div>An incomplete write of {bytes(of.cut_bytes)}, which was not acknowledged, was cut off.</div>
      )}
    </>
  )
}

function FabricState({ pod: { name, fabric } }: { pod: OwnPod }) {
  if (!fabric && name !== 'self') return 'None. Without NATS, pods exchange only stored messages.'
  if (!fabric) return 'Not needed: this server has no other pods.'
  return <Mark color={fabric.is_connected ? 'good' : 'bad'}>{fabric.state}</Mark>
}

/** A gateway asks for the health of a pod every few seconds, and sends no clients to a pod that it cannot ask. */
const GATEWAY_SILENT_MS = 60_000

function GatewayState({ pod: { gateway_peers, health_checks } }: { pod: OwnPod }) {
  const now = useNow()
  const last = Math.max(0, ...[...gateway_peers, ...health_checks].map(({ last_at_ms }) => last_at_ms))
  if (last === 0) return <Mark color="warn">no gateway has connected yet</Mark>
  if (now - last > GATEWAY_SILENT_MS)
    return (
      <Mark color="warn">
        no gateway has connected since <Time at={last} />
      </Mark>
    )
  return <Mark color="good">connected</Mark>
}

function Gateway({ pod, refused }: { pod: OwnPod; refused: number }) {
  const { gateway, gateway_peers, health_checks } = pod
  if (gateway.length === 0) return 'None: clients connect to this server directly.'
  return (
    <>
      <GatewayState pod={pod} />
      {refused > 0 && (
        <div>
          <Mark color="warn">{plural(refused, 'connection')} without a PROXY protocol header refused</Mark>
        </div>
      )}
      {gateway_peers.map(({ address, accepted, refused: closed, last_at_ms }) => (
        <div key={address}>
          <span className="mono">{address}</span>: {plural(accepted, 'connection')}, the last{' '}
          <Time at={last_at_ms} />
          {closed > 0 && (
            <Mark color="warn"> {count(closed)} refused, because gateway_from does not list the address</Mark>
          )}
        </div>
      ))}
      {health_checks.map(({ address, unhealthy, last_at_ms }) => (
        <div key={address}>
          <span className="mono">{address}</span> checks the health, last <Time at={last_at_ms} />
          {unhealthy > 0 && `; answered “unhealthy” ${plural(unhealthy, 'time')}`}
        </div>
      ))}
      <div>
        Expected at <span className="mono">{gateway.join(', ')}</span>
      </div>
    </>
  )
}

function Headroom({ numbers }: { numbers: Numbers }) {
  const rows: [string, Share | null, (value: number) => string][] = [
    ['Memory', numbers.memory, bytes],
    ['Data disk', numbers.disk, bytes],
    ['Open files', numbers.files, count],
  ]
  const known = rows.flatMap(([label, share, format]) => (share ? [{ label, share, format }] : []))
  if (known.length === 0)
    return (
      <Empty title="This pod reports no limits">
        Memory, disk and open files are shown as soon as its metrics have them.
      </Empty>
    )
  return known.map(({ label, share: { used, of }, format }) => {
    const percent = Math.min(100, (used / of) * 100)
    const color = percent >= 90 ? 'var(--bad)' : percent >= 75 ? 'var(--warn)' : 'var(--c1)'
    return (
      <div key={label} style={{ marginBottom: 16 }}>
        <Text size="sm" component="div" style={{ display: 'flex', justifyContent: 'space-between', gap: 12 }}>
          <span>{label}</span>
          <span style={{ whiteSpace: 'nowrap' }}>
            {format(used)} of {format(of)} · {percent.toFixed(0)} %
          </span>
        </Text>
        <Progress value={percent} color={color} mt={6} aria-label={`${label}: ${percent.toFixed(0)} %`} />
      </div>
    )
  })
}

const loudColumns: Column<LoudTenant>[] = [
  {
    key: 'tenant',
    header: 'Tenant',
    width: 'minmax(0, 2fr)',
    cell: ({ id, name }) => (
      <Anchor component={Link} {...({ to: '/tenants', search: { tenant: id } } as object)}>
        {name}
      </Anchor>
    ),
  },
  ...usedColumns,
]

function LoudestTenants() {
  const query = useQuery(loudestQuery)
  return (
    <Panel
      isFlush
      title="Busiest tenants"
      lead="The tenants whose clients published the most messages this month (UTC)."
      actions={
        <Anchor component={Link} to={'/tenants' as string} size="sm">
          All tenants
        </Anchor>
      }
    >
      <Loaded query={query} height={120}>
        {({ items, incomplete }) => (
          <>
            <Rows
              label="Busiest tenants"
              rows={items}
              columns={loudColumns}
              idOf={({ id }) => id}
              empty={
                <Empty title="There is no tenant yet">
                  The first account creates a tenant. Open the sign-up link in the log of the server.
                </Empty>
              }
            />
            {incomplete && (
              <p className={ui.note}>
                The server compares a limited number of tenants, so a busier tenant may be missing.
              </p>
            )}
          </>
        )}
      </Loaded>
    </Panel>
  )
}
