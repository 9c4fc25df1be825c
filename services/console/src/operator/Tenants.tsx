import { Anchor, Badge, Button, Group, Text, TextInput } from '@mantine/core'
import { IconUsers } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { type ReactNode, useState } from 'react'
import { count, plural } from '../lib/format'
import { Choice } from '../ui/Choice'
import { Confirm } from '../ui/Confirm'
import { Drawer } from '../ui/Drawer'
import { done } from '../ui/notify'
import { Page, Panel } from '../ui/Page'
import { type Column, Rows } from '../ui/Rows'
import { Search } from '../ui/Search'
import { Facts } from '../ui/Stat'
import { Empty, Loaded } from '../ui/State'
import { Time } from '../ui/Time'
import ui from '../ui/ui.module.css'
import { resume, suspend, type Tenant, tenantQuery, tenantsQuery } from './queries'

const REASON_CHARS_MAX = 100

const columns: Column<Tenant>[] = [
  { key: 'name', header: 'Tenant', width: 'minmax(0, 2fr)', cell: ({ name }) => name },
  {
    key: 'state',
    header: 'State',
    width: 'minmax(96px, 1fr)',
    cell: ({ suspension }) =>
      suspension ? (
        <Badge variant="light" color="orange" tt="none" fw={500}>
          suspended
        </Badge>
      ) : (
        'running'
      ),
  },
  { key: 'brokers', header: 'Brokers', width: '72px', isNumber: true, cell: ({ brokers }) => count(brokers) },
  {
    key: 'members',
    header: 'Members',
    width: '80px',
    isNumber: true,
    isExtra: true,
    cell: ({ members }) => count(members),
  },
  {
    key: 'created',
    header: 'Created',
    width: '96px',
    isNumber: true,
    isExtra: true,
    cell: ({ created_at_ms }) => <Time at={created_at_ms} />,
  },
]

interface Asked {
  tenant?: string
  search?: string
  state?: string
}

/** All tenants of the region. */
export function Tenants() {
  const asked = useSearch({ strict: false }) as Asked
  const navigate = useNavigate()
  const query = useQuery(tenantsQuery)
  const change = (to: Asked) =>
    void navigate({ to: '/tenants' as string, search: { ...asked, ...to } as never, replace: true })
  const open = query.data?.items.find(({ id }) => id === asked.tenant)
  const wanted = asked.search?.trim().toLowerCase() ?? ''
  const isOne = ({ name, id, suspension }: Tenant) =>
    (name.toLowerCase().includes(wanted) || id.startsWith(wanted)) &&
    (asked.state !== 'suspended' || suspension !== null)
  return (
    <Page title="Tenants" lead="A tenant is an organisation with its members and brokers.">
      <Panel isFlush>
        <Group className={ui.tableBar} gap="sm">
          <Search
            label="Search tenants"
            placeholder="Name or id"
            value={asked.search ?? ''}
            onChange={(search) => change({ search: search || undefined })}
          />
          <Choice
            label="State"
            data={[
              { value: 'all', label: 'All' },
              { value: 'suspended', label: 'Suspended' },
            ]}
            value={asked.state === 'suspended' ? 'suspended' : 'all'}
            onChange={(value) => change({ state: value === 'suspended' ? value : undefined })}
          />
        </Group>
        <Loaded query={query} height={320}>
          {({ items, isCut }) => (
            <>
              <Rows
                label="Tenants"
                rows={items.filter(isOne)}
                columns={columns}
                idOf={({ id }) => id}
                onOpen={({ id }) => change({ tenant: id })}
                empty={<NoTenant isFiltered={items.length > 0} />}
              />
              {isCut && (
                <p className={ui.note}>
                  This list has the first {count(items.length)} tenants. The API and the command line find the
                  others by id.
                </p>
              )}
            </>
          )}
        </Loaded>
      </Panel>
      <Drawer
        opened={asked.tenant !== undefined}
        onClose={() => change({ tenant: undefined })}
        title={open ? `Tenant ${open.name}` : 'Tenant'}
      >
        {asked.tenant && <OneTenant id={asked.tenant} />}
      </Drawer>
    </Page>
  )
}

function NoTenant({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered) return <Empty title="No tenant matches">Search for another name or state.</Empty>
  return (
    <Empty icon={<IconUsers size={28} stroke={1.4} />} title="There is no tenant yet">
      The first account creates a tenant. Open the sign-up link in the log of the server.
    </Empty>
  )
}

function OneTenant({ id }: { id: string }) {
  const query = useQuery(tenantQuery(id))
  return (
    <Loaded query={query}>
      {(tenant) => (
        <>
          <Facts
            rows={[
              ['Name', tenant.name],
              [
                'Id',
                <span key="id" className="mono">
                  {tenant.id}
                </span>,
              ],
              ['Created', <Time key="created" at={tenant.created_at_ms} />],
              ['Brokers', count(tenant.brokers)],
              ['Members', count(tenant.members)],
              ['Plan', tenant.plan ?? 'none'],
              ...suspensionOf(tenant),
            ]}
          />
          <Text size="sm" my="md">
            <Anchor component={Link} {...({ to: '/audit', search: { tenant: tenant.id } } as object)} inherit>
              Audit log of this tenant
            </Anchor>
          </Text>
          {tenant.suspension ? <Resume tenant={tenant} /> : <Suspend tenant={tenant} />}
        </>
      )}
    </Loaded>
  )
}

function suspensionOf({ suspension }: Tenant): [string, ReactNode][] {
  if (!suspension) return [['State', 'running']]
  const { since_ms, reason, brokers } = suspension
  return [
    ['Suspended', <Time key="since" at={since_ms} />],
    ['Reason', reason],
    ['Stopped brokers', brokers.length > 0 ? brokers.join(', ') : 'none: no broker was running'],
  ]
}

function Suspend({ tenant }: { tenant: Tenant }) {
  const client = useQueryClient()
  const [reason, setReason] = useState('')
  return (
    <>
      <TextInput
        mt="lg"
        label="Reason for a suspension"
        description="Members of the tenant read it, and it stands in their audit log."
        value={reason}
        maxLength={REASON_CHARS_MAX}
        onChange={(event) => setReason(event.currentTarget.value)}
      />
      <Confirm
        verb="Suspend tenant"
        title={`Suspend ${tenant.name}?`}
        name={tenant.name}
        loses={
          <Text size="sm">
            {plural(tenant.brokers, 'broker')} {tenant.brokers === 1 ? 'stops' : 'stop'} and all their clients
            are disconnected. {plural(tenant.members, 'member')} can only look. Stored sessions and messages
            stay; resuming the tenant starts the brokers again.
          </Text>
        }
        act={() => suspend(tenant.id, reason.trim())}
        onDone={() => {
          done(`${tenant.name} is suspended.`)
          void client.invalidateQueries({ queryKey: ['tenants'] })
        }}
      >
        {(open) => (
          <Button color="red" variant="light" mt="md" onClick={open} disabled={reason.trim() === ''}>
            Suspend tenant
          </Button>
        )}
      </Confirm>
    </>
  )
}

function Resume({ tenant }: { tenant: Tenant }) {
  const client = useQueryClient()
  const stopped = tenant.suspension?.brokers ?? []
  return (
    <Confirm
      verb="Resume tenant"
      title={`Resume ${tenant.name}?`}
      loses={
        <Text size="sm">
          {plural(stopped.length, 'broker')} that the suspension stopped{' '}
          {stopped.length === 1 ? 'runs' : 'run'} again, and clients can connect.
        </Text>
      }
      act={() => resume(tenant.id)}
      onDone={() => {
        done(`${tenant.name} runs again.`)
        void client.invalidateQueries({ queryKey: ['tenants'] })
      }}
    >
      {(open) => (
        <Button mt="lg" onClick={open}>
          Resume tenant
        </Button>
      )}
    </Confirm>
  )
}
