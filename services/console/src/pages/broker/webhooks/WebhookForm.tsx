import { Checkbox, NumberInput, Stack, Switch, TagsInput, TextInput } from '@mantine/core'
import { useState } from 'react'
import { useBroker } from '../../../api/brokers'
import { putWebhook, type Webhook, type WebhookSettings } from '../../../api/webhooks'
import { Form } from '../../../ui/Form'
import { PasswordInput } from '../../../ui/PasswordInput'
import { NameInput } from '../access/NameInput'

type Event = WebhookSettings['events'][number]

const EVENTS: { value: Event; label: string; description: string }[] = [
  { value: 'message', label: 'Message', description: 'A message was published on one of the filters below.' },
  { value: 'connect', label: 'Connect', description: 'A client has connected.' },
  { value: 'disconnect', label: 'Disconnect', description: 'A client has disconnected, with the reason.' },
  { value: 'limit_reached', label: 'Limit reached', description: 'A client or the broker is over a limit.' },
]

interface WebhookFormProps {
  row: Webhook | undefined
  onDone: (name: string) => void
}

export function WebhookForm({ row, onDone }: WebhookFormProps) {
  const { path } = useBroker()
  const [before] = useState(row)
  const [name, setName] = useState(row?.name ?? '')
  const [url, setUrl] = useState(row?.url ?? '')
  const [events, setEvents] = useState<string[]>(row?.events ?? ['message'])
  const [filters, setFilters] = useState(row?.filters ?? [])
  const [signingKey, setSigningKey] = useState('')
  const [batchMax, setBatchMax] = useState<number | string>(row?.batch_max ?? 1)
  const [enabled, setEnabled] = useState(row?.enabled ?? true)
  const save = (overwrites: boolean) =>
    putWebhook(
      path,
      name,
      {
        url,
        events: events as Event[],
        filters: events.includes('message') ? filters : [],
        signing_key: signingKey || null,
        batch_max: Number(batchMax),
        enabled,
      },
      before,
      overwrites,
    )
  return (
    <Form verb="Save webhook" act={save} onDone={() => onDone(name)}>
      {(wrong) => (
        <>
          {!row && <NameInput value={name} onChange={setName} error={wrong.name} placeholder="orders" />}
          <TextInput
            label="URL"
            type="url"
            description="https on the public internet, unless the operator allows others"
            placeholder="https://example.org/hook"
            value={url}
            onChange={(event) => setUrl(event.currentTarget.value)}
            error={wrong.url}
            required
            withAsterisk={false}
          />
          <Checkbox.Group label="Events" value={events} onChange={setEvents} error={wrong.events}>
            <Stack gap="xs" mt="xs">
              {EVENTS.map((event) => (
                <Checkbox key={event.value} {...event} />
              ))}
            </Stack>
          </Checkbox.Group>
          {events.includes('message') && (
            <TagsInput
              label="Topic filters"
              description="Press Enter after each filter"
              placeholder="plant/+/alarm"
              value={filters}
              onChange={setFilters}
              splitChars={[' ']}
              error={wrong.filters}
              acceptValueOnBlur
            />
          )}
          <PasswordInput
            label="Signing key"
            description={
              row
                ? 'Leave it empty to keep the stored key.'
                : 'The server signs each request with this key, so that your service can verify the sender.'
            }
            value={signingKey}
            onChange={(event) => setSigningKey(event.currentTarget.value)}
            autoComplete="off"
            error={wrong.signing_key}
          />
          <NumberInput
            label="Highest number of events in a request"
            min={1}
            allowDecimal={false}
            allowNegative={false}
            value={batchMax}
            onChange={setBatchMax}
            error={wrong.batch_max}
          />
          <Switch
            label="Enabled"
            description="Disabling a webhook deletes its queued events, and it queues no new ones."
            checked={enabled}
            onChange={(event) => setEnabled(event.currentTarget.checked)}
          />
        </>
      )}
    </Form>
  )
}
