import { ActionIcon, Button, Group, TagsInput, Text, TextInput } from '@mantine/core'
import { IconDownload, IconPlayerPause, IconPlayerPlay, IconTrash } from '@tabler/icons-react'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { textOf, toBase64 } from '../../lib/payload'
import { save } from '../../lib/save'
import { filterProblem } from '../../lib/topics'
import classes from '../../live/live.module.css'
import type { Message } from '../../live/log'
import { Messages } from '../../live/Messages'
import { MessageView } from '../../live/MessageView'
import { Publish } from '../../live/Publish'
import { StatusLine } from '../../live/StatusLine'
import { type Live as Connection, useLive, useReceived } from '../../live/useLive'
import { Choice } from '../../ui/Choice'
import { Drawer } from '../../ui/Drawer'
import { Flag } from '../../ui/Flag'
import { Page, Panel } from '../../ui/Page'
import { Empty } from '../../ui/State'
import { Term } from '../../ui/Term'

const HEIGHT = 520
const QOS = [0, 1, 2] as const

/** Subscribe and publish in the page. */
export function Live() {
  const { filters: said, find, qos: asked } = useSearch({ from: '/signed-in/b/$broker/live' })
  const navigate = useNavigate({ from: '/b/$broker/live' })
  const filters = said === undefined ? ['#'] : said.split('\n').filter(Boolean)
  const qos = QOS.find((one) => String(one) === asked) ?? 0
  const live = useLive(filters, qos)
  const [open, setOpen] = useState<Message | null>(null)
  const [wrong, setWrong] = useState<string | null>(null)

  const setFilters = (next: string[]) => {
    const bad = next.map(filterProblem).find((problem) => problem !== null)
    setWrong(bad ?? null)
    if (bad) return
    // A line break alone means no filter; a missing parameter means the default, #.
    void navigate({ search: (before) => ({ ...before, filters: next.join('\n') || '\n' }), replace: true })
  }
  const setFind = (value: string) =>
    void navigate({ search: (before) => ({ ...before, find: value || undefined }), replace: true })

  if (!live.hasListener) {
    return (
      <Page title="Live">
        <Empty title="This server has no WebSocket listener">
          The page connects over WebSocket. Start the server with <Flag>--ws-listen</Flag>.
        </Empty>
      </Page>
    )
  }
  return (
    <Page
      title="Live"
      lead={
        <>
          Messages as they arrive, over this page's own MQTT 5.0 connection: at the chosen{' '}
          <Term of="qos">QoS</Term>, for each <Term of="filter">topic filter</Term>.
        </>
      }
    >
      <div className={classes.split}>
        <Panel isFlush>
          <div className={classes.bar}>
            <TagsInput
              aria-label="Topic filters"
              placeholder={filters.length === 0 ? 'Topic filter, such as plant/+/state' : undefined}
              value={filters}
              onChange={setFilters}
              error={wrong ?? refusedText(live)}
              splitChars={[' ']}
              style={{ flex: '1 1 220px' }}
            />
            <Choice
              label="Largest QoS"
              data={QOS.map((value) => ({ value: String(value), label: `QoS ${value}` }))}
              value={String(qos)}
              onChange={(value) =>
                void navigate({ search: (before) => ({ ...before, qos: value }), replace: true })
              }
            />
            <TextInput
              data-search
              aria-label="Find in messages"
              placeholder="Find"
              value={find ?? ''}
              onChange={(event) => setFind(event.currentTarget.value)}
              w={140}
            />
            <Controls live={live} />
          </div>
          <Received live={live} find={find} onOpen={setOpen} />
        </Panel>
        {live.canPublish && (
          <Panel title="Publish">
            <Publish client={live.client} status={live.status} />
          </Panel>
        )}
      </div>
      <Drawer opened={open !== null} onClose={() => setOpen(null)} title="Message">
        {open && <MessageView message={open} />}
      </Drawer>
    </Page>
  )
}

interface ReceivedProps {
  live: Connection
  find: string | undefined
  onOpen: (message: Message) => void
}

/** How the connection gets on, and the messages. */
function Received({ live, find, onOpen }: ReceivedProps) {
  const view = useReceived(live.client)
  return (
    <>
      <div className={classes.bar} style={{ minHeight: 44 }}>
        <StatusLine status={live.status} view={view} />
        {view.isPaused && (
          <Text size="xs" c="dimmed">
            Paused, {view.missed} not shown
          </Text>
        )}
      </div>
      <Messages messages={view.messages} find={find} height={HEIGHT} onOpen={onOpen} />
    </>
  )
}

function refusedText({ client }: Connection) {
  const [first] = client.refused
  return first && `${first[0]} is refused: ${first[1]}.`
}

function Controls({ live }: { live: Connection }) {
  const { log } = live.client
  const { isPaused, messages } = useReceived(live.client)
  return (
    <Group gap={4} wrap="nowrap">
      <Button
        size="xs"
        variant="default"
        w={96}
        leftSection={isPaused ? <IconPlayerPlay size={14} /> : <IconPlayerPause size={14} />}
        onClick={() => log.pause(!isPaused)}
      >
        {isPaused ? 'Resume' : 'Pause'}
      </Button>
      <ActionIcon
        variant="subtle"
        color="gray"
        aria-label="Download the messages as JSON lines"
        title="Download the messages as JSON lines"
        disabled={messages.length === 0}
        onClick={() => download(messages)}
      >
        <IconDownload size={16} />
      </ActionIcon>
      <ActionIcon
        variant="subtle"
        color="gray"
        aria-label="Clear the list"
        title="Clear the list"
        onClick={() => log.clear()}
      >
        <IconTrash size={16} />
      </ActionIcon>
    </Group>
  )
}

/** Times are absolute, payloads that are no text are Base64. */
function download(messages: readonly Message[]) {
  const lines = messages.toReversed().map(({ at, topic, payload, qos, retain, properties }) => {
    const text = textOf(payload)
    const said = text === null ? { payload_base64: toBase64(payload) } : { payload: text }
    return JSON.stringify({ at: new Date(at).toISOString(), topic, qos, retain, ...said, properties })
  })
  save(`${lines.join('\n')}\n`, 'messages.jsonl', 'application/x-ndjson')
}
