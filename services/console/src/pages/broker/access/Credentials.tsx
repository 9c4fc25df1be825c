import { Badge, Button } from '@mantine/core'
import { IconKey, IconPlus, IconStack2 } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { type Credential, credentialsQuery, type MadeCredential } from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import { Drawer } from '../../../ui/Drawer'
import { Panel } from '../../../ui/Page'
import { type Column, Rows } from '../../../ui/Rows'
import { Empty, Loaded } from '../../../ui/State'
import { Time } from '../../../ui/Time'
import { Batch } from './Batch'
import { Create, Edit, Shown } from './CredentialForms'
import { NEW, useBatch, useEdit } from './useEdit'

const columns: Column<Credential>[] = [
  {
    key: 'user',
    header: 'User',
    width: 'minmax(0, 2fr)',
    cell: ({ user }) => <span className="mono">{user}</span>,
  },
  { key: 'group', header: 'Group', width: 'minmax(0, 1fr)', cell: ({ group }) => group ?? '–' },
  {
    key: 'rules',
    header: 'Own rules',
    width: '88px',
    isNumber: true,
    isExtra: true,
    cell: ({ rules }) => rules.length,
  },
  {
    key: 'state',
    header: 'State',
    width: '140px',
    isExtra: true,
    cell: ({ enabled, expires_at_ms }) => {
      if (!enabled)
        return (
          <Badge variant="default" tt="none" fw={500}>
            disabled
          </Badge>
        )
      if (expires_at_ms)
        return (
          <span>
            expires <Time at={expires_at_ms} />
          </span>
        )
      return 'enabled'
    },
  },
  {
    key: 'created',
    header: 'Created',
    width: '88px',
    isNumber: true,
    cell: ({ created_at_ms }) => <Time at={created_at_ms} />,
  },
]

/** Users and passwords of devices. */
export function Credentials() {
  const { path, can } = useBroker()
  const query = useQuery(credentialsQuery(path))
  const { edit, isNew, set } = useEdit()
  const client = useQueryClient()
  const reload = () => client.invalidateQueries({ queryKey: ['b', path.broker, 'credentials'] })
  const [made, setMade] = useState<MadeCredential | null>(null)
  const batch = useBatch()
  const add = can('access:write') && (
    <Button leftSection={<IconPlus size={16} />} onClick={() => set(NEW)}>
      Create credential
    </Button>
  )
  const actions = can('access:write') && (
    <>
      <Button variant="default" leftSection={<IconStack2 size={16} />} onClick={batch.open}>
        Create batch
      </Button>
      {query.data?.items.length !== 0 && add}
    </>
  )
  const show = (credential: MadeCredential) => {
    setMade(credential)
    void reload()
  }
  const close = () => {
    setMade(null)
    set(undefined)
  }
  return (
    <Panel isFlush title="Credentials" lead="User and password of a device." actions={actions}>
      <Batch
        isOpen={can('access:write') && batch.isOpen}
        onMade={() => void reload()}
        onClose={batch.close}
      />
      <Loaded query={query} height={240}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty icon={<IconKey size={28} stroke={1.4} />} title="No credential yet" action={add}>
              Give each device its own credential. You can then rotate or delete it without touching the other
              devices.
            </Empty>
          ) : (
            <Rows
              label="Credentials"
              rows={items}
              columns={columns}
              idOf={({ user }) => user}
              onOpen={({ user }) => set(user)}
            />
          )
        }
      </Loaded>
      {/* A new one can be created before the list has loaded. */}
      <Drawer
        opened={made !== null || isNew || edit !== undefined}
        onClose={close}
        title={made ? `Credential of ${made.user}` : edit ? `Credential ${edit}` : 'Create credential'}
        // The password cannot be shown again.
        closeOnClickOutside={made === null}
        closeOnEscape={made === null}
      >
        {made && <Shown made={made} onClose={close} />}
        {!made && isNew && <Create onMade={show} />}
        {!made && edit !== undefined && (
          <Loaded query={query}>
            {({ items }) => (
              <Edit
                key={edit}
                credential={items.find(({ user }) => user === edit)}
                onRotated={show}
                onDone={() => {
                  void reload()
                  close()
                }}
              />
            )}
          </Loaded>
        )}
      </Drawer>
    </Panel>
  )
}
