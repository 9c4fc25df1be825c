import { ActionIcon, Alert, Button, Group, Stack, Switch, Text, Textarea, TextInput } from '@mantine/core'
import { IconPlus, IconX } from '@tabler/icons-react'
import { useMutation } from '@tanstack/react-query'
import { type FormEvent, useState } from 'react'
import { fromHex } from '../lib/payload'
import { topicProblem } from '../lib/topics'
import { Choice } from '../ui/Choice'
import type { LiveClient } from './client'
import classes from './live.module.css'

type Kind = 'text' | 'json' | 'hex'
interface Property {
  id: number
  name: string
  value: string
}

const CONFIRMATIONS = [
  'Sent. QoS 0 has no acknowledgement.',
  'Acknowledged: the server has stored it for every session that wants it.',
  'Complete: it is delivered exactly once.',
]

/** Why a payload is not what its kind says; null when it is. */
function payloadProblem(payload: string, kind: Kind): string | null {
  if (kind === 'hex' && fromHex(payload) === null) return 'Enter pairs of hexadecimal digits, such as 68 69.'
  if (kind !== 'json') return null
  try {
    JSON.parse(payload)
    return null
  } catch {
    return 'This is no JSON. Choose text to send it as it is.'
  }
}

/** MQTT allows a name several times. */
function valuesOf(properties: readonly Property[]): Record<string, string[]> {
  const values = new Map<string, string[]>()
  for (const { name, value } of properties) values.set(name, [...(values.get(name) ?? []), value])
  return Object.fromEntries(values)
}

export function Publish({ client, isConnected }: { client: LiveClient; isConnected: boolean }) {
  const [topic, setTopic] = useState('')
  const [payload, setPayload] = useState('')
  const [kind, setKind] = useState<Kind>('text')
  const [qos, setQos] = useState<0 | 1 | 2>(1)
  const [retain, setRetain] = useState(false)
  const [properties, setProperties] = useState<Property[]>([])
  const [isTried, setTried] = useState(false)
  const wrongTopic = topicProblem(topic)
  const wrongPayload = payloadProblem(payload, kind)

  const publishing = useMutation({
    mutationFn: () => {
      const bytes = kind === 'hex' ? fromHex(payload) : new TextEncoder().encode(payload)
      const named = properties.filter(({ name }) => name !== '')
      const userProperties = named.length > 0 ? valuesOf(named) : undefined
      const contentType = kind === 'json' ? 'application/json' : undefined
      return client.publish(topic, bytes ?? new Uint8Array(), {
        qos,
        retain,
        properties: { userProperties, contentType },
      })
    },
  })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    setTried(true)
    if (!wrongTopic && !wrongPayload) publishing.mutate()
  }
  const change = (id: number, change: Partial<Property>) =>
    setProperties((before) => before.map((one) => (one.id === id ? { ...one, ...change } : one)))

  return (
    <form onSubmit={submit}>
      <Stack gap="sm">
        <TextInput
          label="Topic"
          placeholder="plant/1/state"
          value={topic}
          onChange={(event) => setTopic(event.currentTarget.value)}
          error={isTried && wrongTopic}
        />
        <Textarea
          label="Payload"
          autosize
          minRows={3}
          maxRows={12}
          classNames={{ input: 'mono' }}
          value={payload}
          onChange={(event) => setPayload(event.currentTarget.value)}
          error={isTried && wrongPayload}
        />
        <Group gap="xs" justify="space-between">
          <Choice
            label="Payload is"
            data={[
              { value: 'text', label: 'Text' },
              { value: 'json', label: 'JSON' },
              { value: 'hex', label: 'Hex' },
            ]}
            value={kind}
            onChange={(value) => setKind(value as Kind)}
          />
          <Choice
            label="QoS"
            data={['0', '1', '2'].map((value) => ({ value, label: `QoS ${value}` }))}
            value={String(qos)}
            onChange={(value) => setQos(Number(value) as 0 | 1 | 2)}
          />
        </Group>
        <Switch
          label="Retain"
          description="New subscribers get the last retained message of a topic."
          checked={retain}
          onChange={(event) => setRetain(event.currentTarget.checked)}
        />
        {properties.map(({ id, name, value }) => (
          <Group key={id} gap={6} wrap="nowrap">
            <TextInput
              aria-label="Name of the user property"
              placeholder="name"
              value={name}
              onChange={(event) => change(id, { name: event.currentTarget.value })}
            />
            <TextInput
              aria-label="Value of the user property"
              placeholder="value"
              value={value}
              onChange={(event) => change(id, { value: event.currentTarget.value })}
            />
            <ActionIcon
              variant="subtle"
              color="gray"
              aria-label="Remove the user property"
              onClick={() => setProperties((before) => before.filter((one) => one.id !== id))}
            >
              <IconX size={16} />
            </ActionIcon>
          </Group>
        ))}
        <Group justify="space-between">
          <Button
            size="xs"
            variant="subtle"
            color="gray"
            leftSection={<IconPlus size={14} />}
            onClick={() => setProperties((before) => [...before, { id: Date.now(), name: '', value: '' }])}
          >
            User property
          </Button>
          <Button type="submit" disabled={!isConnected} loading={publishing.isPending}>
            Publish
          </Button>
        </Group>
        <div role="status">
          {publishing.isSuccess && (
            <Text size="xs" className={classes.soft}>
              {CONFIRMATIONS[qos]}
            </Text>
          )}
          {publishing.isError && (
            <Alert color="red" variant="light">
              It was not published: {publishing.error.message}
            </Alert>
          )}
        </div>
      </Stack>
    </form>
  )
}
