import { Button, Group, NumberInput, Stack, Switch, Text, Textarea, TextInput } from '@mantine/core'
import { IconDownload } from '@tabler/icons-react'
import { useState } from 'react'
import type { MadeCredential } from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import { createBatch } from '../../../api/fleets'
import { useOnce } from '../../../api/once'
import {
  BATCH_MAX,
  batchProblem,
  csvOf,
  deviceProblems,
  jsonOf,
  type Login,
  numbered,
  pasted,
} from '../../../lib/fleet'
import { plural } from '../../../lib/format'
import { save } from '../../../lib/save'
import { Choice } from '../../../ui/Choice'
import { Drawer } from '../../../ui/Drawer'
import { Form } from '../../../ui/Form'
import { type Column, Rows } from '../../../ui/Rows'
import { GroupSelect } from './GroupSelect'
import { ScramSwitch } from './ScramSwitch'

interface BatchProps {
  isOpen: boolean
  onMade: () => void
  onClose: () => void
}

/** Credentials of up to a thousand devices at once. */
export function Batch({ isOpen, onMade, onClose }: BatchProps) {
  const [made, setMade] = useState<MadeCredential[] | null>(null)
  const close = () => {
    setMade(null)
    onClose()
  }
  return (
    <Drawer
      opened={made !== null || isOpen}
      onClose={close}
      title={made ? plural(made.length, 'new credential') : 'Create batch'}
      size={560}
      // The passwords cannot be shown again.
      closeOnClickOutside={made === null}
      closeOnEscape={made === null}
    >
      {made && <Shown made={made} onClose={close} />}
      {!made && isOpen && (
        <Create
          onMade={(items) => {
            setMade(items)
            onMade()
          }}
        />
      )}
    </Drawer>
  )
}

function Create({ onMade }: { onMade: (items: MadeCredential[]) => void }) {
  const { path } = useBroker()
  const [way, setWay] = useState('numbered')
  const [prefix, setPrefix] = useState('')
  const [first, setFirst] = useState<number | string>(1)
  const [count, setCount] = useState<number | string>(10)
  const [text, setText] = useState('')
  const [isBound, setBound] = useState(true)
  const [group, setGroup] = useState<string | null>(null)
  const [scram, setScram] = useState(false)
  const create = useOnce(createBatch)
  const isNumbered = way === 'numbered'
  const devices = isNumbered ? numbered(prefix, Number(first), Number(count), isBound) : pasted(text, isBound)
  const problem = batchProblem(devices, scram)
  const isReady = devices.length > 0 && problem === null && (!isNumbered || prefix !== '')
  const last = devices.at(-1)?.user
  return (
    <Form
      verb="Create batch"
      isDisabled={!isReady}
      act={() => create({ path, batch: { devices, group, rules: [], scram } })}
      onDone={onMade}
    >
      {(wrong) => {
        const refused = deviceProblems(wrong, devices)
        return (
          <>
            <Text size="sm" c="dimmed">
              The server generates a password for each device, and shows the passwords once, in the next step.
              It creates all credentials or none.
            </Text>
            <Choice
              isWide
              label="User names"
              data={[
                { value: 'numbered', label: 'Numbered names' },
                { value: 'pasted', label: 'Pasted names' },
              ]}
              value={way}
              onChange={setWay}
            />
            {isNumbered ? (
              <>
                <TextInput
                  label="Prefix"
                  placeholder="pump-"
                  value={prefix}
                  onChange={(event) => setPrefix(event.currentTarget.value)}
                  error={refused}
                  maxLength={250}
                  data-autofocus
                />
                <Group grow align="flex-start">
                  <NumberInput
                    label="First number"
                    min={0}
                    max={999_999_999}
                    allowDecimal={false}
                    value={first}
                    onChange={setFirst}
                  />
                  <NumberInput
                    label="Devices"
                    min={1}
                    max={BATCH_MAX}
                    clampBehavior="strict"
                    allowDecimal={false}
                    value={count}
                    onChange={setCount}
                    error={problem}
                  />
                </Group>
                {prefix !== '' && last && (
                  <Text size="sm">
                    From <span className="mono">{devices[0]?.user}</span> to{' '}
                    <span className="mono">{last}</span>
                  </Text>
                )}
              </>
            ) : (
              <Textarea
                label="Names"
                description={`One user name in each line, at most 1,000. ${plural(devices.length, 'name')} so far.`}
                placeholder={'pump-7\npump-8'}
                value={text}
                onChange={(event) => setText(event.currentTarget.value)}
                error={problem ?? refused}
                classNames={{ input: 'mono' }}
                rows={10}
                spellCheck={false}
              />
            )}
            <Switch
              label="Bind the client id"
              description="Each device can connect only with its user name as client id."
              checked={isBound}
              onChange={(event) => setBound(event.currentTarget.checked)}
            />
            <GroupSelect value={group} onChange={setGroup} error={wrong.group} />
            <ScramSwitch value={scram} onChange={setScram} />
          </>
        )
      }}
    </Form>
  )
}

const columns: Column<Login>[] = [
  {
    key: 'user',
    header: 'User name',
    width: 'minmax(0, 1fr)',
    cell: ({ username }) => (
      <span className="mono" title={username}>
        {username}
      </span>
    ),
  },
  {
    key: 'password',
    header: 'Password',
    width: 'minmax(0, 1fr)',
    cell: ({ password }) => (
      <span className="mono" title={password}>
        {password}
      </span>
    ),
  },
]

function Shown({ made, onClose }: { made: MadeCredential[]; onClose: () => void }) {
  const { broker, endpoint } = useBroker()
  const logins = made.map(
    ({ user, client_id, secret }): Login => ({
      username: `${endpoint?.userPrefix ?? ''}${user}`,
      client_id: client_id ?? null,
      password: secret ?? '',
    }),
  )
  const file = `${broker.name}-credentials`
  return (
    <Stack gap="md">
      <Text size="sm">Store the passwords now. They cannot be read again.</Text>
      <Group gap="xs">
        <Button
          leftSection={<IconDownload size={16} />}
          onClick={() => save(csvOf(logins), `${file}.csv`, 'text/csv')}
        >
          Download CSV
        </Button>
        <Button
          variant="default"
          leftSection={<IconDownload size={16} />}
          onClick={() => save(jsonOf(logins), `${file}.json`, 'application/json')}
        >
          Download JSON
        </Button>
      </Group>
      <Rows label="New credentials" rows={logins} columns={columns} idOf={({ username }) => username} />
      <Button variant="default" onClick={onClose} style={{ alignSelf: 'flex-start' }}>
        I have stored them
      </Button>
    </Stack>
  )
}
