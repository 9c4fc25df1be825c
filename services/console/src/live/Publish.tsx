import { Alert, Button, Group, Stack, Switch, Text, Textarea, TextInput } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { type FormEvent, useEffect, useMemo, useRef, useState } from 'react'
import { useBroker } from '../api/brokers'
import { useMe } from '../api/session'
import { milliseconds } from '../lib/format'
import { Choice } from '../ui/Choice'
import { More } from '../ui/More'
import { type LiveClient, type Status, Unacknowledged } from './client'
import {
  type Draft,
  EMPTY,
  hasProperties,
  type Kind,
  messageOf,
  problemsOf,
  readDraft,
  writeDraft,
} from './draft'
import { draftName, draftStore } from './draftStore'
import classes from './live.module.css'
import { PublishProperties } from './PublishProperties'

const CONFIRMATIONS = [
  { said: 'Sent. QoS 0 has no acknowledgement.', answer: null },
  { said: 'Acknowledged: the server has stored it for every session that wants it.', answer: 'PUBACK' },
  { said: 'Complete: it is delivered exactly once.', answer: 'PUBCOMP' },
] as const

/** The draft is stored when it has not changed for this long, milliseconds. */
const STORED_AFTER_MS = 300

/** The draft of this person for the broker, which the browser keeps between visits. */
function useDraft() {
  const { path } = useBroker()
  const { user } = useMe()
  const name = draftName(user.id, path.broker)
  const [draft, setDraft] = useState(() => readDraft(draftStore(), name))
  const latest = useRef(draft)
  latest.current = draft
  // biome-ignore lint/correctness/useExhaustiveDependencies: each change begins the wait anew
  useEffect(() => {
    const timer = setTimeout(() => writeDraft(draftStore(), name, latest.current), STORED_AFTER_MS)
    return () => clearTimeout(timer)
  }, [draft, name])
  useEffect(() => {
    const store = () => writeDraft(draftStore(), name, latest.current)
    addEventListener('pagehide', store)
    return () => {
      removeEventListener('pagehide', store)
      store()
    }
  }, [name])
  return [draft, setDraft] as const
}

export function Publish({ client, status }: { client: LiveClient; status: Status }) {
  const isConnected = status.kind === 'connected'
  const packetBytesMax = isConnected ? status.packetBytesMax : undefined
  const [draft, setDraft] = useDraft()
  const [isTried, setTried] = useState(false)
  const [receivedMs, setReceivedMs] = useState<number | null>(null)
  const problems = useMemo(() => problemsOf(draft, packetBytesMax), [draft, packetBytesMax])
  const wrong = isTried ? problems : {}
  const change = (to: Partial<Draft>) => setDraft((before) => ({ ...before, ...to }))

  const isSending = useRef(false)
  const publishing = useMutation({
    onSettled: () => {
      isSending.current = false
    },
    mutationFn: async ({ topic, qos, retain, ...rest }: Draft) => {
      const { payload, properties } = messageOf({ topic, qos, retain, ...rest })
      setReceivedMs(null)
      return { qos, ms: await client.publish(topic, payload, { qos, retain, properties }, setReceivedMs) }
    },
  })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    setTried(true)
    // The second click of a double click may come before the button is drawn anew.
    if (Object.keys(problems).length > 0 || isSending.current) return
    isSending.current = true
    publishing.mutate(draft)
  }
  const clear = () => {
    setDraft(EMPTY)
    setTried(false)
    publishing.reset()
    isSending.current = false
  }

  return (
    <form onSubmit={submit}>
      <Stack gap="sm">
        <Message draft={draft} onChange={change} wrong={wrong} />
        <Properties draft={draft} onChange={change} wrong={wrong} />
        <Group justify="space-between">
          <Button size="xs" variant="subtle" color="gray" onClick={clear} disabled={draft === EMPTY}>
            Clear
          </Button>
          <Button type="submit" disabled={!isConnected} loading={publishing.isPending}>
            Publish
          </Button>
        </Group>
        <div role="status">
          {publishing.isSuccess && (
            <Text size="xs" className={classes.soft}>
              {CONFIRMATIONS[publishing.data.qos].said}
              {timesText(publishing.data, receivedMs)}
            </Text>
          )}
          {publishing.isError && (
            <Alert
              color="red"
              variant="light"
              title={
                publishing.error instanceof Unacknowledged
                  ? 'No acknowledgement came'
                  : 'The message was not published'
              }
            >
              {publishing.error.message}
            </Alert>
          )}
        </div>
      </Stack>
    </form>
  )
}

/** How long the answer took, beside the way of the message back to this page. */
function timesText({ qos, ms }: { qos: 0 | 1 | 2; ms: number }, receivedMs: number | null) {
  const { answer } = CONFIRMATIONS[qos]
  const said = [
    answer && `${answer} after ${milliseconds(ms)}`,
    receivedMs !== null && `this page received it after ${milliseconds(receivedMs)}`,
  ].filter(Boolean)
  if (said.length === 0) return null
  const text = said.join('; ')
  return ` ${text.charAt(0).toUpperCase()}${text.slice(1)}.`
}

interface PartProps {
  draft: Draft
  onChange: (change: Partial<Draft>) => void
  wrong: Partial<Record<keyof Draft, string>>
}

function Message({ draft, onChange, wrong }: PartProps) {
  return (
    <>
      <TextInput
        label="Topic"
        placeholder="plant/1/state"
        value={draft.topic}
        onChange={(event) => onChange({ topic: event.currentTarget.value })}
        error={wrong.topic}
      />
      <Textarea
        label="Payload"
        autosize
        minRows={3}
        maxRows={12}
        classNames={{ input: 'mono' }}
        value={draft.payload}
        onChange={(event) => onChange({ payload: event.currentTarget.value })}
        error={wrong.payload}
      />
      <Group gap="xs" justify="space-between">
        <Choice
          label="Payload is"
          data={[
            { value: 'text', label: 'Text' },
            { value: 'json', label: 'JSON' },
            { value: 'hex', label: 'Hex' },
          ]}
          value={draft.kind}
          onChange={(value) => onChange({ kind: value as Kind })}
        />
        <Choice
          label="QoS"
          data={['0', '1', '2'].map((value) => ({ value, label: `QoS ${value}` }))}
          value={String(draft.qos)}
          onChange={(value) => onChange({ qos: Number(value) as 0 | 1 | 2 })}
        />
      </Group>
      <Switch
        label="Retain"
        description="New subscribers get the last retained message of a topic."
        checked={draft.retain}
        onChange={(event) => onChange({ retain: event.currentTarget.checked })}
      />
    </>
  )
}

const PROPERTIES = ['contentType', 'responseTopic', 'correlationData', 'expiry', 'userProperties'] as const

/** Folded while none is set, because most messages have none. */
const Properties = (props: PartProps) => (
  <More
    label="Properties of MQTT 5.0"
    isOpenAtFirst={hasProperties(props.draft)}
    isWrong={PROPERTIES.some((name) => props.wrong[name])}
  >
    <div className={classes.properties}>
      <PublishProperties {...props} />
    </div>
  </More>
)
