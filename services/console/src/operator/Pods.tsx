import { Badge, Button, Progress } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { count, plural } from '../lib/format'
import { Panel } from '../ui/Page'
import { type Column, Rows } from '../ui/Rows'
import { Loaded } from '../ui/State'
import { Time } from '../ui/Time'
import { Drain } from './Drain'
import { Mark } from './Mark'
import { drainedFromQuery, type OwnPod, type PodLease, podsQuery } from './queries'

/** A pod's row in the table. */
interface PodRow {
  name: string
  lease: PodLease | null
  own: OwnPod | null
}

/** The pods of the region, and the button that drains the pod of this page. */
export function Pods({ own }: { own: OwnPod }) {
  const query = useQuery(podsQuery)
  return (
    <Panel
      isFlush
      title="Pods"
      lead={
        (query.data?.length ?? 0) > 1
          ? 'A pod is one server of the region. It renews a lease in the store while it runs. To drain another pod, open this page at the admin port of that pod.'
          : 'A pod is one server of the region. It renews a lease in the store while it runs.'
      }
    >
      <Loaded query={query} height={90}>
        {(leases) => {
          const others = leases.filter(({ name }) => name !== own.name)
          const lease = leases.find(({ name }) => name === own.name) ?? null
          const rows: PodRow[] = [
            { name: own.name, lease, own },
            ...others.map((one) => ({ name: one.name, lease: one, own: null })),
          ]
          const alive = others.filter(({ is_alive }) => is_alive).length
          return (
            <Rows label="Pods" rows={rows} columns={podColumns(alive)} idOf={({ name }) => name} rowPx={52} />
          )
        }}
      </Loaded>
    </Panel>
  )
}

const podColumns = (others: number): Column<PodRow>[] => [
  {
    key: 'name',
    header: 'Pod',
    width: 'minmax(0, 1.2fr)',
    cell: ({ name, own }) => (
      <>
        {own && name === 'self' ? 'This server' : <span className="mono">{name}</span>}
        {own && name !== 'self' && (
          <Badge ml={8} size="sm" variant="default" tt="none" fw={500}>
            this one
          </Badge>
        )}
      </>
    ),
  },
  {
    key: 'state',
    header: 'State',
    width: 'minmax(112px, 1.4fr)',
    isWrapped: true,
    cell: (row) => <State {...row} />,
  },
  {
    key: 'lease',
    header: 'Lease ends',
    width: '104px',
    isExtra: true,
    cell: ({ lease }) => (lease ? <Time at={lease.until_ms} /> : '–'),
  },
  {
    key: 'connections',
    header: 'Connections',
    width: '104px',
    isNumber: true,
    isExtra: true,
    cell: ({ own }) => (own ? count(own.connections) : '–'),
  },
  {
    key: 'drain',
    header: '',
    width: '92px',
    isNumber: true,
    cell: ({ own }) =>
      own ? (
        <Drain pod={own} others={others}>
          {(open) => (
            <Button size="xs" variant="default" onClick={open} disabled={own.is_draining}>
              Drain pod
            </Button>
          )}
        </Drain>
      ) : null,
  },
]

function State({ own, lease }: PodRow) {
  if (own?.is_draining) return <Draining left={own.connections} />
  if (own?.problem) return <Mark color="bad">{own.problem}</Mark>
  if (own) return <Mark color="good">accepts clients</Mark>
  if (lease?.is_alive) return <Mark color="good">running</Mark>
  return <Mark color="bad">not running: its lease has expired</Mark>
}

/** How far a drain has come. A page opened in the middle of a drain does not know how many connections there were. */
function Draining({ left }: { left: number }) {
  const { data: of = null } = useQuery(drainedFromQuery)
  if (left === 0) return <Mark color="warn">drained: no connections left</Mark>
  if (of === null || of < left) return <Mark color="warn">draining: {plural(left, 'connection')} left</Mark>
  return (
    <div>
      <Mark color="warn">
        draining: {count(left)} of {plural(of, 'connection')} left
      </Mark>
      <Progress
        value={((of - left) / of) * 100}
        color="var(--warn)"
        size="xs"
        mt={4}
        aria-label={`Drain: ${count(of - left)} of ${plural(of, 'connection')} closed`}
      />
    </div>
  )
}
