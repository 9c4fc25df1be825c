import { NumberInput, Select, Stack, Switch, TextInput } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { type AccessSettings, accessQuery, changeAccess, ownSettings } from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import type { Schemas } from '../../../api/client'
import { Form } from '../../../ui/Form'
import { Held } from '../../../ui/Held'
import { saved } from '../../../ui/notify'
import { Panel } from '../../../ui/Page'
import { PasswordInput } from '../../../ui/PasswordInput'
import { Loaded } from '../../../ui/State'
import type { AccessFormProps } from './BrokerRules'
import { useAccessChanged, useOwnAccessQuestion } from './BySettings'

type Webhook = Schemas['AccessWebhook']

const SWITCHES = [
  {
    name: 'passwords',
    initial: true,
    label: 'Passwords',
    description: 'Clients send the user name and password of a credential.',
  },
  {
    name: 'scram',
    initial: true,
    label: 'SCRAM-SHA-256',
    description: 'MQTT 5.0 clients prove the password without sending it.',
  },
  {
    name: 'tokens',
    initial: false,
    label: 'Tokens',
    description: 'Clients send a JWT of one of the issuers under Tokens.',
  },
  {
    name: 'anonymous',
    initial: false,
    label: 'Anonymous',
    description: 'Clients without user name and certificate may connect.',
  },
] as const

/** The fields of this form. The record has the rules of all clients, too. */
const methodsOf = ({ passwords, scram, tokens, anonymous, certificates, webhook }: AccessSettings) => ({
  passwords,
  scram,
  tokens,
  anonymous,
  certificates,
  webhook,
})

const CERTIFICATES = [
  { value: 'off', label: 'are ignored' },
  { value: 'accepted', label: 'may authenticate a client' },
  { value: 'required', label: 'are required' },
  { value: 'additional', label: 'are required, and a password or token too' },
]

const ORDER =
  'The server tries certificate, token, password and your own service, in this order. The first one that recognises the client decides.'
const NOT_IN_FORCE =
  'The settings of the server decide who connects. If you save these switches, they replace the settings of the server.'

/** Switches authentication methods on and off. The first method that has a record of the client decides. */
export function Methods() {
  const { broker, path } = useBroker()
  const query = useQuery(accessQuery(path))
  const isBySettings = broker.access_by_settings
  return (
    <Panel
      title={isBySettings ? 'Authentication, not in force' : 'Authentication'}
      lead={isBySettings ? NOT_IN_FORCE : ORDER}
    >
      <Loaded query={query}>
        {(latest) => (
          <Held latest={latest}>
            {(access, setTouched) => (
              <MethodsForm key={JSON.stringify(access)} access={access} onTouch={setTouched} />
            )}
          </Held>
        )}
      </Loaded>
    </Panel>
  )
}

function MethodsForm({ access, onTouch }: AccessFormProps) {
  const { path, can } = useBroker()
  const reload = useAccessChanged()
  const [stored] = useState(() => ownSettings(access.value))
  const [said, setText] = useState(stored)
  const change = (to: Partial<AccessSettings>) => setText((before) => ({ ...before, ...to }))
  const asks = useOwnAccessQuestion(said)
  const isChanged = said !== stored
  useEffect(() => onTouch(isChanged), [isChanged, onTouch])
  const isReadOnly = !can('access:write')
  return (
    <fieldset disabled={isReadOnly} style={{ border: 0, padding: 0, margin: 0 }}>
      <Form
        verb="Save authentication"
        isDisabled={isReadOnly}
        asks={asks}
        act={(overwrites) => changeAccess(path, stored, methodsOf(said), overwrites)}
        onDone={(change) => {
          onTouch(false)
          saved('Authentication was saved.', change.inForceMs)
          reload()
        }}
      >
        {(wrong) => (
          <Stack gap="md" maw={560}>
            {SWITCHES.map(({ name, initial, label, description }) => (
              <Switch
                key={name}
                label={label}
                description={description}
                checked={said[name] ?? initial}
                onChange={(event) => change({ [name]: event.currentTarget.checked })}
              />
            ))}
            <Select
              label="Client certificates"
              data={CERTIFICATES}
              value={said.certificates ?? 'off'}
              onChange={(value) => change({ certificates: value as AccessSettings['certificates'] })}
              allowDeselect={false}
            />
            <Switch
              label="Your own service"
              description="The server asks a webhook of yours last, about clients that nothing else has authenticated."
              checked={Boolean(said.webhook)}
              onChange={(event) => change({ webhook: event.currentTarget.checked ? { url: '' } : null })}
            />
            {said.webhook && (
              <WebhookFields value={said.webhook} onChange={(webhook) => change({ webhook })} wrong={wrong} />
            )}
          </Stack>
        )}
      </Form>
    </fieldset>
  )
}

interface WebhookFieldsProps {
  value: Webhook
  onChange: (webhook: Webhook) => void
  wrong: Record<string, string>
}

function WebhookFields({ value, onChange, wrong }: WebhookFieldsProps) {
  const number = (name: 'timeout_ms' | 'cache_s') => (said: number | string) =>
    onChange({ ...value, [name]: said === '' ? undefined : Number(said) })
  return (
    <Stack gap="sm" pl="xl">
      <TextInput
        label="URL"
        type="url"
        placeholder="https://example.org/mqtt"
        value={value.url}
        onChange={(event) => onChange({ ...value, url: event.currentTarget.value })}
        error={wrong['webhook.url'] ?? wrong.url}
        required
        withAsterisk={false}
      />
      <PasswordInput
        label="Signing key"
        description="The server signs its requests with this key. Leave it empty to keep the stored key."
        value={value.signing_key ?? ''}
        onChange={(event) => onChange({ ...value, signing_key: event.currentTarget.value || null })}
        autoComplete="off"
        error={wrong['webhook.signing_key']}
      />
      <NumberInput
        label="Timeout of a request"
        suffix=" ms"
        allowDecimal={false}
        allowNegative={false}
        value={value.timeout_ms ?? ''}
        onChange={number('timeout_ms')}
        error={wrong['webhook.timeout_ms']}
      />
      <NumberInput
        label="Cache an answer for"
        suffix=" s"
        allowDecimal={false}
        allowNegative={false}
        value={value.cache_s ?? ''}
        onChange={number('cache_s')}
        error={wrong['webhook.cache_s']}
      />
    </Stack>
  )
}
