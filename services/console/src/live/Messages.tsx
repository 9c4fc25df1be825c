import { Badge, Text, VisuallyHidden } from '@mantine/core'
import { useMediaQuery } from '@mantine/hooks'
import { useMemo } from 'react'
import { now } from '../lib/clock'
import { absolute, bytes, cut } from '../lib/format'
import { preview } from '../lib/payload'
import { type Column, Rows } from '../ui/Rows'
import classes from './live.module.css'
import type { Message } from './log'

const PREVIEW_CHARS = 160
const TITLE_CHARS = 1_000
const SAID_CHARS = 40

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
    cell: ({ topic }) => (
      <span className="mono" title={cut(topic, TITLE_CHARS)}>
        {cut(topic)}
      </span>
    ),
  },
  {
    key: 'payload',
    header: 'Payload',
    width: 'minmax(0, 1fr)',
    cell: ({ payload }) => <span className="mono">{preview(payload, PREVIEW_CHARS)}</span>,
  },
  { key: 'qos', header: 'QoS', width: '28px', cell: ({ qos }) => qos },
  {
    key: 'retain',
    header: <VisuallyHidden>Retained</VisuallyHidden>,
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

/** Where the window is narrow, the payload stands below its topic. */
const narrowColumns: Column<Message>[] = [
  {
    key: 'message',
    header: 'Topic and payload',
    width: 'minmax(0, 1fr)',
    cell: ({ topic, payload }) => (
      <span className={`mono ${classes.pair}`}>
        <span>{cut(topic)}</span>
        <span className={classes.soft}>{preview(payload, PREVIEW_CHARS)}</span>
      </span>
    ),
  },
  { key: 'qos', header: 'QoS', width: '28px', cell: ({ qos }) => qos },
]
const NARROW = '(max-width: 700px)'
const ROW_PX = 34
const NARROW_ROW_PX = 48

interface MessagesProps {
  messages: readonly Message[]
  find?: string
  height: number
  onOpen?: (message: Message) => void
  /** Advice while no message has arrived. */
  hint?: string
  /** Rows are highlighted for a moment when they come. */
  isNewShown?: boolean
}

const HINT = 'Publish to a topic that a filter of this page matches.'
const NEW_MS = 2_000
const timeText = ({ at }: Message) => absolute(at).slice(11)
const topicText = ({ topic, payload }: Message) => `${cut(topic)} ${preview(payload, SAID_CHARS)}`
const isNew = ({ at }: Message) => now() - at < NEW_MS

/** Messages, newest first. */
export function Messages({ messages, find, height, onOpen, hint = HINT, isNewShown }: MessagesProps) {
  const shown = useMemo(() => found(messages, find), [messages, find])
  const isNarrow = useMediaQuery(NARROW, undefined, { getInitialValueInEffect: false })
  return (
    <Rows
      // The rows change their height, so the list begins at its top again.
      key={isNarrow ? 'narrow' : 'wide'}
      label="Messages"
      rows={shown}
      columns={isNarrow ? narrowColumns : columns}
      idOf={({ id }) => String(id)}
      rowPx={isNarrow ? NARROW_ROW_PX : ROW_PX}
      height={height}
      onOpen={onOpen}
      // Screen readers get it with the row's button.
      detailOf={isNarrow ? timeText : topicText}
      isNew={isNewShown ? isNew : undefined}
      empty={
        <Text size="sm" c="dimmed" p="lg" style={{ height }}>
          {messages.length > 0 ? 'No message has this in its topic or payload.' : `No message yet. ${hint}`}
        </Text>
      }
    />
  )
}

/** Characters of a payload in which the search looks. */
const SEARCHED_CHARS = 2_000
/** Rows are searched again with each flush of the log, so their texts are made once. */
const searched = new WeakMap<Message, string>()

function textOf(message: Message) {
  let text = searched.get(message)
  if (text === undefined) {
    // A line break stands in no topic filter and in no preview, so no search matches across both.
    text = `${message.topic}\n${preview(message.payload, SEARCHED_CHARS)}`.toLowerCase()
    searched.set(message, text)
  }
  return text
}

function found(messages: readonly Message[], find: string | undefined): Message[] {
  const wanted = find?.toLowerCase() ?? ''
  if (wanted === '') return messages as Message[]
  return messages.filter((message) => textOf(message).includes(wanted))
}
