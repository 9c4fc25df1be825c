import { Badge, Text } from '@mantine/core'
import { useMemo } from 'react'
import { absolute, bytes } from '../lib/format'
import { preview } from '../lib/payload'
import { type Column, Rows } from '../ui/Rows'
import classes from './live.module.css'
import type { Message } from './log'

const PREVIEW_CHARS = 160

const columns: Column<Message>[] = [
  {
    key: 'at',
    header: 'Time',
    width: '76px',
    isExtra: true,
    cell: ({ at }) => <span className={classes.soft}>{absolute(at).slice(11)}</span>,
  },
  {
    key: 'topic',
    header: 'Topic',
    width: 'minmax(0, 1fr)',
    narrowWidth: 'minmax(0, 3fr)',
    cell: ({ topic }) => (
      <span className="mono" title={topic}>
        {topic}
      </span>
    ),
  },
  {
    key: 'payload',
    header: 'Payload',
    width: 'minmax(0, 1fr)',
    narrowWidth: 'minmax(0, 2fr)',
    cell: ({ payload }) => <span className="mono">{preview(payload, PREVIEW_CHARS)}</span>,
  },
  { key: 'qos', header: 'QoS', width: '28px', cell: ({ qos }) => qos },
  {
    key: 'retain',
    header: '',
    width: '60px',
    isExtra: true,
    cell: ({ retain }) =>
      retain && (
        <Badge size="xs" variant="default" className={classes.badge}>
          retained
        </Badge>
      ),
  },
  {
    key: 'size',
    header: 'Size',
    width: '68px',
    isNumber: true,
    isExtra: true,
    cell: ({ payload }) => <span className={classes.soft}>{bytes(payload.length)}</span>,
  },
]

interface MessagesProps {
  messages: readonly Message[]
  find?: string
  height: number
  onOpen?: (message: Message) => void
}

/** Messages, newest first. */
export function Messages({ messages, find, height, onOpen }: MessagesProps) {
  const shown = useMemo(() => found(messages, find), [messages, find])
  return (
    <Rows
      label="Messages"
      rows={shown}
      columns={columns}
      idOf={({ id }) => String(id)}
      rowPx={34}
      height={height}
      onOpen={onOpen}
      empty={
        <Text size="sm" c="dimmed" p="lg" style={{ height }}>
          {messages.length > 0
            ? 'No message has this in its topic or payload.'
            : 'No message has come yet. Publish to a topic that a filter of this page matches.'}
        </Text>
      }
    />
  )
}

function found(messages: readonly Message[], find: string | undefined): Message[] {
  const wanted = find?.toLowerCase() ?? ''
  if (wanted === '') return messages as Message[]
  return messages.filter(
    ({ topic, payload }) =>
      topic.toLowerCase().includes(wanted) || preview(payload, 2000).toLowerCase().includes(wanted),
  )
}
