import { Button, NumberInput, Select, Stack, Switch, Text, TextInput } from '@mantine/core'
import { IconPlus } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { useBroker } from '../../../api/brokers'
import {
  type ClaimToken,
  claimTokensQuery,
  createClaimToken,
  deleteClaimToken,
  type MadeClaimToken,
} from '../../../api/fleets'
import { useOnce } from '../../../api/once'
import { useMe } from '../../../api/session'
import { now } from '../../../lib/clock'
import { claimCommands } from '../../../lib/fleet'
import { absolute, count } from '../../../lib/format'
import { nameFrom } from '../../../lib/names'
import { ruleText } from '../../../lib/rules'
import { Code, Secret } from '../../../ui/Code'
import { Confirm } from '../../../ui/Confirm'
import { Drawer } from '../../../ui/Drawer'
import { Form } from '../../../ui/Form'
import { done } from '../../../ui/notify'
import { Panel } from '../../../ui/Page'
import { type Column, Rows } from '../../../ui/Rows'
import { Facts } from '../../../ui/Stat'
import { Empty, Loaded } from '../../../ui/State'
import { Time } from '../../../ui/Time'
import { Gone } from './Gone'
import { GroupSelect } from './GroupSelect'
import { RuleEditor, rulesAreRight } from './RuleEditor'
import { NEW, useClaimToken } from './useEdit'

const DAY_MS = 86_400_000
const USES_MAX = 100_000
const LIVES = [
  { value: '1', label: 'one day' },
  { value: '7', label: '7 days' },
  { value: '30', label: '30 days' },
  { value: '90', label: '90 days' },
  { value: '365', label: 'one year' },
]

const usesText = ({ uses, uses_max }: ClaimToken) => `${count(uses)} of ${count(uses_max)}`

const columns: Column<ClaimToken>[] = [
  { key: 'name', header: 'Name', width: 'minmax(0, 2fr)', cell: ({ name }) => name },
  {
    key: 'prefix',
    header: 'User prefix',
    width: 'minmax(0, 1fr)',
    cell: ({ user_prefix }) => <span className="mono">{user_prefix}</span>,
  },
  {
    key: 'group',
    header: 'Group',
    width: 'minmax(0, 1fr)',
    isExtra: true,
    cell: ({ group }) => group ?? '–',
  },
  { key: 'uses', header: 'Used', width: '110px', isNumber: true, cell: usesText },
  {
    key: 'expires',
    header: 'Expires',
    width: '88px',
    isNumber: true,
    cell: ({ expires_at_ms }) => <Time at={expires_at_ms} />,
  },
]

/** Tokens that devices exchange for credentials of their own. */
export function ClaimTokens() {
  const { path, can } = useBroker()
  const query = useQuery(claimTokensQuery(path))
  const { claim, set } = useClaimToken()
  const client = useQueryClient()
  const [made, setMade] = useState<MadeClaimToken | null>(null)
  const reload = () => client.invalidateQueries({ queryKey: claimTokensQuery(path).queryKey })
  const canWrite = can('access:write')
  const close = () => {
    setMade(null)
    set(undefined)
  }
  const add = canWrite && (
    <Button variant="default" leftSection={<IconPlus size={16} />} onClick={() => set(NEW)}>
      Create claim token
    </Button>
  )
  const row = query.data?.items.find(({ id }) => id === claim)
  const isNew = claim === NEW && canWrite
  const isOne = claim !== undefined && claim !== NEW
  return (
    <Panel
      isFlush
      title="Claim tokens"
      lead="A device exchanges a claim token for a credential of its own, so that one image serves many devices."
      actions={query.data?.items.length !== 0 && add}
    >
      <Loaded query={query} height={160}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title="No claim token yet" action={add}>
              Put a claim token into the image of your devices. Each device then creates its own credential at
              its first start.
            </Empty>
          ) : (
            <Rows
              label="Claim tokens"
              rows={items}
              columns={columns}
              idOf={({ id }) => id}
              onOpen={({ id }) => set(id)}
            />
          )
        }
      </Loaded>
      {/* A new one can be created before the list has loaded. */}
      <Drawer
        opened={made !== null || isNew || isOne}
        onClose={close}
        title={made?.name ?? row?.name ?? (isNew ? 'Create claim token' : 'Claim token')}
        size={560}
        // The claim token cannot be shown again.
        closeOnClickOutside={made === null}
        closeOnEscape={made === null}
      >
        {made && <Shown made={made} onClose={close} />}
        {!made && isNew && (
          <Create
            onMade={(token) => {
              setMade(token)
              void reload()
            }}
          />
        )}
        {!made && isOne && (
          <Loaded query={query}>
            {() =>
              row ? (
                <Details
                  row={row}
                  onDeleted={() => {
                    void reload()
                    close()
                  }}
                />
              ) : (
                <Gone title="There is no such claim token" onClose={close} />
              )
            }
          </Loaded>
        )}
      </Drawer>
    </Panel>
  )
}

function Shown({ made, onClose }: { made: MadeClaimToken; onClose: () => void }) {
  const commands = claimCommands(location.origin, made.secret, `${made.user_prefix}7`)
  return (
    <Stack gap="md">
      <Secret
        name={`Claim token ${made.name}`}
        value={made.secret}
        fileName={`${nameFrom(made.name)}.claim-token`}
      />
      <Text size="sm">On a device with the command line:</Text>
      <Code text={commands.millrace} label="the command" />
      <Text size="sm">
        Without it. The answer has the user name, the password and the endpoints of the broker:
      </Text>
      <Code text={commands.curl} label="the request" />
      <Button onClick={onClose} style={{ alignSelf: 'flex-start' }}>
        I have stored it
      </Button>
    </Stack>
  )
}

function Create({ onMade }: { onMade: (made: MadeClaimToken) => void }) {
  const { path } = useBroker()
  const [name, setName] = useState('')
  const [prefix, setPrefix] = useState('')
  const [uses, setUses] = useState<number | string>(100)
  const [days, setDays] = useState<string | null>('30')
  const [isBound, setBound] = useState(true)
  const [group, setGroup] = useState<string | null>(null)
  const [rules, setRules] = useState<ClaimToken['rules']>([])
  // A repeated request must be the same, so the time of its expiry counts from here.
  const [openedAt] = useState(now)
  const send = useOnce(createClaimToken)
  const create = () =>
    send({
      path,
      token: {
        name,
        user_prefix: prefix,
        uses_max: Number(uses),
        expires_at_ms: openedAt + Number(days) * DAY_MS,
        bind_client_id: isBound,
        group,
        rules,
      },
    })
  return (
    <Form verb="Create claim token" act={create} onDone={onMade} isDisabled={!rulesAreRight(rules)}>
      {(wrong) => (
        <>
          <TextInput
            label="Name"
            description="For your colleagues"
            placeholder="pumps of line 2"
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
            error={wrong.name}
            maxLength={100}
            required
            withAsterisk={false}
            data-autofocus
          />
          <TextInput
            label="User prefix"
            description="The user name of each device begins with this. Letters, digits, . : _ and -"
            placeholder="pump-"
            classNames={{ input: 'mono' }}
            value={prefix}
            onChange={(event) => setPrefix(event.currentTarget.value)}
            error={wrong.user_prefix}
            maxLength={128}
            required
            withAsterisk={false}
          />
          <NumberInput
            label="Uses"
            description="Number of credentials that devices can create with it"
            min={1}
            max={USES_MAX}
            allowDecimal={false}
            value={uses}
            onChange={setUses}
            error={wrong.uses_max}
          />
          <Select
            label="Valid for"
            description="Credentials that devices have created stay."
            data={LIVES}
            value={days}
            onChange={setDays}
            error={wrong.expires_at_ms}
            allowDeselect={false}
          />
          <Switch
            label="Bind the client id"
            description="Each device can connect only with its user name as client id."
            checked={isBound}
            onChange={(event) => setBound(event.currentTarget.checked)}
          />
          <GroupSelect value={group} onChange={setGroup} error={wrong.group} />
          <div>
            <Text size="sm" fw={500} mb={8}>
              Rules of each credential
            </Text>
            <RuleEditor rules={rules} onChange={setRules} />
          </div>
        </>
      )}
    </Form>
  )
}

function Details({ row, onDeleted }: { row: ClaimToken; onDeleted: () => void }) {
  const { path, can } = useBroker()
  const { user } = useMe()
  return (
    <Stack gap="xl">
      <Facts
        rows={[
          [
            'User prefix',
            <span key="prefix" className="mono">
              {row.user_prefix}
            </span>,
          ],
          ['Used', usesText(row)],
          ['Expires', absolute(row.expires_at_ms)],
          ['Client id', row.bind_client_id ? 'the user name of the device' : 'any'],
          ['Group', row.group ?? 'none'],
          [
            'Rules',
            <span key="rules" className="mono">
              {row.rules.map(ruleText).join('; ') || 'none'}
            </span>,
          ],
          ['Created', absolute(row.created_at_ms)],
          ['Created by', row.made_by === user.id ? 'you' : `member ${row.made_by}`],
        ]}
      />
      <Text size="sm" c="dimmed">
        The server refuses the claim token while the member who created it may not change credentials.
        {row.api_token &&
          ` It was created with the API token ${row.api_token}, and ends when that token is deleted or expires. A login of the command line is such a token.`}
      </Text>
      {can('access:write') && (
        <Confirm
          verb="Delete claim token"
          title={`Delete ${row.name}?`}
          loses={`Devices can no longer create credentials with it. The credentials that devices have created (${count(row.uses)}) stay.`}
          act={() => deleteClaimToken(path, row.id)}
          onDone={() => {
            done(`${row.name} was deleted.`)
            onDeleted()
          }}
        >
          {(open) => (
            <Button color="red" variant="light" onClick={open} style={{ alignSelf: 'flex-start' }}>
              Delete claim token
            </Button>
          )}
        </Confirm>
      )}
    </Stack>
  )
}
