import { Anchor, Button, Checkbox, Select, Stack, Text, TextInput } from '@mantine/core'
import { IconPlus } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { useOrganisation } from '../../api/brokers'
import type { Schemas } from '../../api/client'
import { useOnce } from '../../api/once'
import { createToken, deleteToken, type Token, tokensQuery } from '../../api/organisation'
import type { Permission } from '../../api/session'
import { now } from '../../lib/clock'
import { Code, Secret } from '../../ui/Code'
import { Confirm } from '../../ui/Confirm'
import { Drawer } from '../../ui/Drawer'
import { Form } from '../../ui/Form'
import { done } from '../../ui/notify'
import { Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Empty, Loaded } from '../../ui/State'
import { Time } from '../../ui/Time'

const SCOPES: { value: Permission; label: string }[] = [
  { value: 'brokers:read', label: 'See brokers and their usage' },
  { value: 'brokers:write', label: 'Create, change and delete brokers' },
  { value: 'access:read', label: 'See credentials, rules, webhooks' },
  { value: 'access:write', label: 'Change credentials, rules, webhooks' },
  { value: 'clients:read', label: 'See clients, sessions, retained messages' },
  { value: 'clients:write', label: 'Disconnect clients, end sessions, clear retained messages' },
  { value: 'messages:read', label: 'Read messages as they come' },
  { value: 'messages:write', label: 'Publish messages' },
  { value: 'organisation:read', label: 'See members, invitations, tokens' },
  { value: 'organisation:write', label: 'Change members, invitations, tokens' },
  { value: 'audit:read', label: 'Read the audit log' },
]

const LIVES = [
  { value: '30', label: '30 days' },
  { value: '90', label: '90 days' },
  { value: '365', label: 'one year' },
  { value: '', label: 'an unlimited time' },
]
/** Stands in the address for a token that is not made yet. */
const NEW = '+'
const DAY_MS = 86_400_000

export function Tokens() {
  const { id, can } = useOrganisation()
  const client = useQueryClient()
  const query = useQuery(tokensQuery(id))
  const { edit } = useSearch({ from: '/signed-in/org/$organisation' })
  const navigate = useNavigate({ from: '/org/$organisation' })
  const [made, setMade] = useState<Schemas['MadeToken'] | null>(null)
  const canWrite = can('organisation:write')
  const reload = () => client.invalidateQueries({ queryKey: ['org', id, 'tokens'] })
  const setEdit = (edit: string | undefined) => {
    // A secret is not shown again after a step back.
    setMade(null)
    void navigate({ search: (before) => ({ ...before, edit }) })
  }
  const close = () => setEdit(undefined)
  const columns: Column<Token>[] = [
    { key: 'name', header: 'Name', width: 'minmax(0, 1fr)', cell: ({ name }) => name },
    {
      key: 'scopes',
      header: 'Scopes',
      width: 'minmax(0, 2fr)',
      isExtra: true,
      cell: ({ scopes }) => (
        <span className="mono" title={scopes.join(', ')}>
          {scopes.join(', ')}
        </span>
      ),
    },
    {
      key: 'expires',
      header: 'Expires',
      width: '80px',
      cell: ({ expires_at_ms }) => (expires_at_ms ? <Time at={expires_at_ms} /> : 'never'),
    },
    {
      key: 'delete',
      header: '',
      width: '84px',
      isNumber: true,
      cell: (row) => canWrite && <Revoke token={row} onDone={reload} />,
    },
  ]
  const add = canWrite && (
    <Button leftSection={<IconPlus size={16} />} onClick={() => setEdit(NEW)}>
      Create token
    </Button>
  )
  return (
    <Panel
      isFlush
      title="API tokens"
      lead="For programs: the API, the command line, Terraform."
      actions={query.data?.items.length !== 0 && add}
    >
      <Loaded query={query}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title="No API token yet" action={add || <ApiPage />}>
              A program sends a token instead of signing in, and may do only what the token's scopes allow.
            </Empty>
          ) : (
            <Rows label="API tokens" rows={items} columns={columns} idOf={(one) => one.id} />
          )
        }
      </Loaded>
      <Drawer
        // The answer may come when the form is closed, and no other shows the secret.
        opened={made !== null || (edit === NEW && canWrite)}
        onClose={close}
        title={made ? made.name : 'Create token'}
        size={520}
        // The token cannot be shown again.
        closeOnClickOutside={made === null}
        closeOnEscape={made === null}
      >
        {made ? (
          <Stack gap="md">
            <Secret name={`Token ${made.name}`} value={made.secret} fileName={`${made.name}.token`} />
            <Text size="sm">Try it:</Text>
            <Code
              text={`curl -H 'Authorization: Bearer ${made.secret}' ${location.origin}/api/v1/organisations/${id}/brokers`}
              label="the command"
            />
            <Button onClick={close} style={{ alignSelf: 'flex-start' }}>
              I have stored it
            </Button>
          </Stack>
        ) : (
          <TokenForm
            onMade={(token) => {
              setMade(token)
              void reload()
            }}
          />
        )}
      </Drawer>
    </Panel>
  )
}

function Revoke({ token, onDone }: { token: Token; onDone: () => void }) {
  const { id } = useOrganisation()
  return (
    <Confirm
      verb="Revoke"
      title={`Revoke ${token.name}?`}
      loses="Programs that use it are refused from now on, and so are the claim tokens that were created with it."
      act={() => deleteToken(id, token.id)}
      onDone={() => {
        done(`${token.name} was revoked.`)
        onDone()
      }}
    >
      {(open) => (
        <Button size="xs" variant="subtle" color="gray" onClick={open}>
          Revoke
        </Button>
      )}
    </Confirm>
  )
}

function TokenForm({ onMade }: { onMade: (made: Schemas['MadeToken']) => void }) {
  const { id, can } = useOrganisation()
  const [name, setName] = useState('')
  const [scopes, setScopes] = useState<string[]>(['brokers:read'])
  const [days, setDays] = useState<string | null>('90')
  // A repeated request must be the same, so the time of its expiry counts from here.
  const [openedAt] = useState(now)
  const send = useOnce(createToken)
  const create = () => {
    const expires_at_ms = days ? openedAt + Number(days) * DAY_MS : null
    return send({ organisation: id, token: { name, scopes: scopes as Permission[], expires_at_ms } })
  }
  return (
    <Form verb="Create token" act={create} onDone={onMade} isDisabled={scopes.length === 0}>
      {(wrong) => (
        <>
          <TextInput
            label="Name"
            placeholder="deployment"
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
            error={wrong.name}
            maxLength={100}
            required
            withAsterisk={false}
            data-autofocus
          />
          <Checkbox.Group label="Scopes" value={scopes} onChange={setScopes} error={wrong.scopes}>
            <Stack gap="xs" mt="xs">
              {SCOPES.filter(({ value }) => can(value)).map(({ value, label }) => (
                <Checkbox
                  key={value}
                  value={value}
                  label={label}
                  description={<span className="mono">{value}</span>}
                />
              ))}
            </Stack>
          </Checkbox.Group>
          <Select label="Valid for" data={LIVES} value={days} onChange={setDays} allowDeselect={false} />
        </>
      )}
    </Form>
  )
}

/** For those who may not create a token. */
const ApiPage = () => (
  <Anchor href="/api/v1/openapi.json" size="sm">
    See what the API offers
  </Anchor>
)
