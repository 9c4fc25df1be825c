import { Badge, Button, Divider, Drawer, Select, Stack, Switch, Text, TextInput } from '@mantine/core'
import { IconKey, IconPlus, IconStack2 } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import {
  type Credential,
  changeCredential,
  createCredential,
  credentialsQuery,
  deleteCredential,
  type MadeCredential,
  rotateCredential,
} from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import { useOnce } from '../../../api/once'
import { OVERLAPS } from '../../../lib/overlaps'
import { Secret } from '../../../ui/Code'
import { Confirm } from '../../../ui/Confirm'
import { Form } from '../../../ui/Form'
import { ConnectedClients } from '../../../ui/Losses'
import { done } from '../../../ui/notify'
import { Panel } from '../../../ui/Page'
import { type Column, Rows } from '../../../ui/Rows'
import { Empty, Loaded } from '../../../ui/State'
import { Time } from '../../../ui/Time'
import { Batch } from './Batch'
import { GroupSelect } from './GroupSelect'
import { RuleEditor, rulesAreRight } from './RuleEditor'
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
  const again = () => client.invalidateQueries({ queryKey: ['b', path.broker, 'credentials'] })
  const [made, setMade] = useState<MadeCredential | null>(null)
  const batch = useBatch()
  const add = can('access:write') && (
    <>
      <Button variant="default" leftSection={<IconStack2 size={16} />} onClick={batch.open}>
        Create batch
      </Button>
      <Button leftSection={<IconPlus size={16} />} onClick={() => set(NEW)}>
        Create credential
      </Button>
    </>
  )
  const close = () => {
    setMade(null)
    set(undefined)
  }
  return (
    <Panel isFlush title="Credentials" lead="User and password of a device." actions={add}>
      <Batch isOpen={can('access:write') && batch.isOpen} onMade={() => void again()} onClose={batch.close} />
      <Loaded query={query} height={240}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty icon={<IconKey size={28} stroke={1.4} />} title="No credential yet">
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
        {!made && isNew && (
          <Create
            onMade={(credential) => {
              setMade(credential)
              void again()
            }}
          />
        )}
        {!made && edit !== undefined && (
          <Loaded query={query}>
            {({ items }) => (
              <Edit
                key={edit}
                credential={items.find(({ user }) => user === edit)}
                onRotated={setMade}
                onDone={() => {
                  void again()
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

function Shown({ made, onClose }: { made: MadeCredential; onClose: () => void }) {
  const { endpoint } = useBroker()
  const name = `${endpoint?.userPrefix ?? ''}${made.user}`
  return (
    <Stack gap="md">
      <Text size="sm">
        User name <span className="mono">{name}</span>
      </Text>
      <Secret
        name={`Password of ${made.user}`}
        value={made.secret ?? ''}
        fileName={`${made.user}.txt`}
        file={`user: ${name}\npassword: ${made.secret}`}
      />
      <Button onClick={onClose} style={{ alignSelf: 'flex-start' }}>
        I have stored it
      </Button>
    </Stack>
  )
}

function Create({ onMade }: { onMade: (made: MadeCredential) => void }) {
  const { path } = useBroker()
  const [user, setUser] = useState('')
  const [group, setGroup] = useState<string | null>(null)
  const create = useOnce(createCredential)
  return (
    <Form verb="Create credential" act={() => create({ path, credential: { user, group } })} onDone={onMade}>
      {(wrong) => (
        <>
          <Text size="sm" c="dimmed">
            The server generates the password and shows it once, in the next step.
          </Text>
          <TextInput
            label="User"
            placeholder="pump-7"
            value={user}
            onChange={(event) => setUser(event.currentTarget.value)}
            error={wrong.user}
            maxLength={256}
            required
            withAsterisk={false}
            data-autofocus
          />
          <GroupSelect value={group} onChange={setGroup} error={wrong.group} />
        </>
      )}
    </Form>
  )
}

interface EditProps {
  credential: Credential | undefined
  onRotated: (made: MadeCredential) => void
  onDone: () => void
}

function Edit({ credential: latest, onRotated, onDone }: EditProps) {
  const { path, can } = useBroker()
  const [credential] = useState(latest)
  const [enabled, setEnabled] = useState(credential?.enabled ?? true)
  const [group, setGroup] = useState(credential?.group ?? null)
  const [rules, setRules] = useState(credential?.rules ?? [])
  if (!credential || !latest)
    return <Empty title="There is no such credential">It was deleted meanwhile.</Empty>
  const { user } = credential
  if (!can('access:write')) return <RuleEditor rules={rules} onChange={setRules} isReadOnly />
  return (
    <Stack gap="xl">
      <Form
        verb="Save credential"
        isDisabled={!rulesAreRight(rules)}
        act={(overwrites) => changeCredential(path, credential, { enabled, group, rules }, overwrites)}
        onDone={() => {
          done(`${user} was changed.`)
          onDone()
        }}
      >
        {(wrong) => (
          <>
            <Switch
              label="Enabled"
              description="Disabling a credential disconnects its clients and refuses new ones."
              checked={enabled}
              onChange={(event) => setEnabled(event.currentTarget.checked)}
            />
            <GroupSelect value={group} onChange={setGroup} error={wrong.group} />
            <div>
              <Text size="sm" fw={500} mb={8}>
                Own rules
              </Text>
              <RuleEditor rules={rules} onChange={setRules} />
            </div>
          </>
        )}
      </Form>
      <Divider />
      <Rotate user={user} onRotated={onRotated} />
      <Divider />
      <Confirm
        verb="Delete credential"
        title={`Delete ${user}?`}
        loses={
          <>
            <ConnectedClients search={user} isOne={(one) => one.user === user} />, and no device can come back
            with it. {rules.length > 0 && `Its own rules (${rules.length}) are lost.`}
          </>
        }
        act={() => deleteCredential(path, user)}
        onDone={() => {
          done(`${user} was deleted.`)
          onDone()
        }}
      >
        {(open) => (
          <Button color="red" variant="light" onClick={open} style={{ alignSelf: 'flex-start' }}>
            Delete credential
          </Button>
        )}
      </Confirm>
    </Stack>
  )
}

function Rotate({ user, onRotated }: { user: string; onRotated: (made: MadeCredential) => void }) {
  const { path } = useBroker()
  const [overlap, setOverlap] = useState('3600')
  const rotate = useOnce(rotateCredential)
  return (
    <Form
      verb="Rotate password"
      isSecondary
      act={() => rotate({ path, user, overlap_s: Number(overlap) })}
      onDone={onRotated}
    >
      {() => (
        <Select
          label="The old password stays valid"
          description="After a leak, choose “not at all”. Connected clients stay connected until the credential is disabled."
          data={OVERLAPS}
          value={overlap}
          onChange={(value) => setOverlap(value ?? overlap)}
          allowDeselect={false}
        />
      )}
    </Form>
  )
}
