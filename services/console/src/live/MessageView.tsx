import { Stack, Text } from '@mantine/core'
import { type ReactNode, useState } from 'react'
import { absolute, bytes, legible } from '../lib/format'
import { hexOf, type Shape, shapeOf, shown, textOf } from '../lib/payload'
import { Choice } from '../ui/Choice'
import { Code } from '../ui/Code'
import { Long } from '../ui/Long'
import { Facts } from '../ui/Stat'
import type { Message } from './log'

const SHOWN_BYTES_MAX = 256 * 1024

const SHAPES: { value: Shape; label: string }[] = [
  { value: 'json', label: 'JSON' },
  { value: 'text', label: 'Text' },
  { value: 'hex', label: 'Hex' },
]

/** A payload, in the shape that it looks like or that was chosen. */
export function Payload({ payload }: { payload: Uint8Array }) {
  const [chosen, setChosen] = useState<Shape | null>(null)
  const shape = chosen ?? shapeOf(payload)
  return (
    <Stack gap="xs">
      <Choice
        label="Show the payload as"
        data={SHAPES}
        value={shape}
        onChange={(value) => setChosen(value as Shape)}
      />
      <Code
        text={shown(payload.subarray(0, SHOWN_BYTES_MAX), shape)}
        label="payload"
        isWrapped={shape !== 'hex'}
      />
      {payload.length > SHOWN_BYTES_MAX && (
        <Text size="xs" c="dimmed">
          The first {bytes(SHOWN_BYTES_MAX)} of {bytes(payload.length)} are shown.
        </Text>
      )}
    </Stack>
  )
}

/** The text of correlation data, or its bytes as they are typed into the form. */
function Correlation({ data }: { data: Uint8Array }) {
  const text = textOf(data) ?? `0x${hexOf(data).replaceAll(' ', '')}`
  return <Long text={text} what="correlation data" />
}

/** All of a message. */
export function MessageView({ message }: { message: Message }) {
  const { topic, at, qos, retain, payload, properties } = message
  const users = Object.entries(properties?.userProperties ?? {}).flatMap(([name, values]) =>
    [values].flat().map((value): [string, string] => [`User property ${legible(name)}`, legible(value)]),
  )
  const rows: [string, ReactNode][] = [
    ['Topic', <Long key="topic" text={topic} what="topic" />],
    ['Received', absolute(at)],
    ['QoS', String(qos)],
    ['Retained', retain ? 'yes' : 'no'],
    ['Size', bytes(payload.length)],
  ]
  if (properties?.contentType) rows.push(['Content type', legible(properties.contentType)])
  if (properties?.responseTopic) rows.push(['Response topic', legible(properties.responseTopic)])
  if (properties?.messageExpiryInterval !== undefined) {
    rows.push(['Message expiry', `${properties.messageExpiryInterval} s`])
  }
  if (properties?.correlationData)
    rows.push(['Correlation data', <Correlation key="data" data={properties.correlationData} />])
  if (properties?.payloadFormatIndicator) rows.push(['Payload format', 'UTF-8 text'])
  return (
    <Stack gap="lg">
      <Facts rows={[...rows, ...users]} />
      <Payload key={message.id} payload={payload} />
    </Stack>
  )
}
