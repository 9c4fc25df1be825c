import { ActionIcon, Button, CloseButton, Group, Stack, Text, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconBinaryTree2, IconChevronDown, IconChevronRight, IconSearch } from '@tabler/icons-react'
import { keepPreviousData, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useMemo, useState } from 'react'
import { useBroker } from '../../api/brokers'
import { clearRetained, type Retained, retainedMessageQuery, retainedQuery } from '../../api/live'
import { Problem } from '../../api/problem'
import { bytes, count } from '../../lib/format'
import { fromBase64 } from '../../lib/payload'
import { filterProblem, rowsOf, type TopicNode, treeOf } from '../../lib/topics'
import live from '../../live/live.module.css'
import { Payload } from '../../live/MessageView'
import { Confirm } from '../../ui/Confirm'
import { done } from '../../ui/notify'
import { Page, Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Facts } from '../../ui/Stat'
import { Empty, Loaded } from '../../ui/State'
import { Time } from '../../ui/Time'
import ui from '../../ui/ui.module.css'

type Row = { node: TopicNode<Retained>; label: string; depth: number }

/** Retained messages as a tree of their topics. */
export function Topics() {
  const { path } = useBroker()
  const { topic, filter = '' } = useSearch({ from: '/signed-in/b/$broker/topics' })
  const navigate = useNavigate({ from: '/b/$broker/topics' })
  const wrong = filter === '' ? null : filterProblem(filter)
  const [wanted] = useDebouncedValue(wrong === null && filter !== '' ? filter : undefined, 200)
  const query = useQuery({ ...retainedQuery(path, wanted), placeholderData: keepPreviousData })
  const change = (to: { topic?: string; filter?: string }) =>
    void navigate({ search: (before) => ({ ...before, ...to }), replace: true })
  return (
    <Page
      title="Topics"
      lead="Retained messages: the last value of a topic, which a new subscription gets at once."
    >
      <div className={live.split} style={{ gridTemplateColumns: topic ? undefined : 'minmax(0, 1fr)' }}>
        <Panel isFlush>
          <Group className={ui.tableBar}>
            <TextInput
              data-search
              aria-label="Topic filter"
              placeholder="Topic filter, such as plant/+/state"
              leftSection={<IconSearch size={16} />}
              value={filter}
              onChange={(event) => change({ filter: event.currentTarget.value || undefined })}
              error={wrong}
              w={{ base: '100%', xs: 320 }}
            />
          </Group>
          <Loaded query={query} height={560}>
            {({ items, isCut }) =>
              items.length === 0 ? (
                <NoTopics clear={wanted === undefined ? undefined : () => change({ filter: undefined })} />
              ) : (
                <>
                  <Tree rows={items} chosen={topic} onChoose={(to) => change({ topic: to })} />
                  {isCut && (
                    <Text size="sm" c="dimmed" p="md">
                      The first {count(items.length)} topics. Narrow the filter to see others.
                    </Text>
                  )}
                </>
              )
            }
          </Loaded>
        </Panel>
        {topic && <Value key={topic} topic={topic} onClose={() => change({ topic: undefined })} />}
      </div>
    </Page>
  )
}

/** `clear` takes the filter away, where one is set. */
function NoTopics({ clear }: { clear: (() => void) | undefined }) {
  const { broker } = useBroker()
  if (clear) {
    return (
      <Empty
        title="No retained message matches this filter"
        action={
          <Button variant="default" onClick={clear}>
            Show all topics
          </Button>
        }
      >
        In a filter, + stands for one level and # for all further levels.
      </Empty>
    )
  }
  return (
    <Empty
      icon={<IconBinaryTree2 size={28} stroke={1.4} />}
      title="No topic has a retained message"
      action={
        <Button component={Link} to={`/b/${broker.name}/live`} variant="default">
          Publish one from this page
        </Button>
      }
    >
      A message that is published with the retain flag stays here until another one takes its place, or it
      expires.
    </Empty>
  )
}

interface TreeProps {
  rows: Retained[]
  chosen: string | undefined
  onChoose: (topic: string) => void
}

function Tree({ rows, chosen, onChoose }: TreeProps) {
  const tree = useMemo(() => treeOf(rows), [rows])
  const [toggled, setToggled] = useState<ReadonlySet<string>>(new Set())
  // A small tree is open, a large one is closed, until somebody says otherwise.
  const isOpen = (topic: string) => toggled.has(topic) !== rows.length <= 100
  const toggle = (topic: string) => {
    const next = new Set(toggled)
    if (!next.delete(topic)) next.add(topic)
    setToggled(next)
  }
  const columns: Column<Row>[] = [
    {
      key: 'topic',
      header: 'Topic',
      width: 'minmax(0, 1fr)',
      cell: (row) => (
        <Label
          row={row}
          isChosen={row.node.topic === chosen}
          isOpen={isOpen(row.node.topic)}
          toggle={toggle}
        />
      ),
    },
    {
      key: 'count',
      header: 'Topics below',
      width: '96px',
      isNumber: true,
      isExtra: true,
      cell: ({ node }) => (node.children.size > 0 ? count(node.count - (node.value ? 1 : 0)) : ''),
    },
    { key: 'qos', header: 'QoS', width: '40px', isExtra: true, cell: ({ node }) => node.value?.qos ?? '' },
    {
      key: 'size',
      header: 'Size',
      width: '76px',
      isNumber: true,
      cell: ({ node }) => (node.value ? bytes(node.value.payload_bytes) : ''),
    },
  ]
  return (
    <Rows
      label="Topics"
      rows={rowsOf(tree, isOpen)}
      columns={columns}
      idOf={({ node }) => node.topic}
      rowPx={36}
      rowsShown={16}
      hasOwnControl
      onOpen={({ node }) => (node.value ? onChoose(node.topic) : toggle(node.topic))}
    />
  )
}

interface LabelProps {
  row: Row
  isChosen: boolean
  isOpen: boolean
  toggle: (topic: string) => void
}

function Label({ row: { node, label, depth }, isChosen, isOpen, toggle }: LabelProps) {
  const said = label === '' ? '(empty level)' : label
  return (
    <Group gap={4} wrap="nowrap" style={{ paddingLeft: depth * 20 }}>
      {node.children.size > 0 ? (
        <ActionIcon
          size="sm"
          variant="subtle"
          color="gray"
          aria-expanded={isOpen}
          aria-label={`${isOpen ? 'Close' : 'Open'} ${node.topic}`}
          onClick={() => toggle(node.topic)}
        >
          {isOpen ? <IconChevronDown size={16} /> : <IconChevronRight size={16} />}
        </ActionIcon>
      ) : (
        <span style={{ width: 22, flex: 'none' }} />
      )}
      {node.value ? (
        <Link
          to="."
          search={(before) => ({ ...before, topic: node.topic })}
          className="mono"
          title={node.topic}
          style={{ color: 'inherit', fontWeight: isChosen ? 600 : undefined, textDecoration: 'none' }}
          aria-current={isChosen || undefined}
        >
          {said}
        </Link>
      ) : (
        <span className="mono">{said}</span>
      )}
    </Group>
  )
}

function Value({ topic, onClose }: { topic: string; onClose: () => void }) {
  const { path, can } = useBroker()
  const client = useQueryClient()
  const query = useQuery(retainedMessageQuery(path, topic))
  const isGone = query.error instanceof Problem && query.error.status === 404
  return (
    <Panel
      title={<span className="mono">{topic}</span>}
      actions={<CloseButton aria-label="Close" onClick={onClose} />}
    >
      {isGone ? (
        <Empty title="There is no retained message any more">It was cleared, or it expired.</Empty>
      ) : (
        <Loaded query={query}>
          {({ payload, payload_base64, payload_bytes, qos, expires_at_ms, properties }) => (
            <Stack gap="md">
              <Facts
                rows={[
                  ['QoS', qos],
                  ['Size', bytes(payload_bytes)],
                  ['Expires', expires_at_ms ? <Time key="at" at={expires_at_ms} /> : 'never'],
                  ...properties.map((pair): [string, string] => [String(pair[0]), String(pair[1])]),
                ]}
              />
              <Payload
                payload={
                  payload_base64 ? fromBase64(payload_base64) : new TextEncoder().encode(payload ?? '')
                }
              />
              {can('clients:write') && (
                <Confirm
                  verb="Clear"
                  title="Clear the retained message?"
                  loses={`New subscriptions do not get ${topic} any more. Clients that have it keep it.`}
                  act={() => clearRetained(path, topic)}
                  onDone={() => {
                    done(`${topic} was cleared.`)
                    void client.invalidateQueries({ queryKey: ['b', path.broker, 'retained'] })
                    onClose()
                  }}
                >
                  {(open) => (
                    <Button variant="default" color="red" onClick={open} style={{ alignSelf: 'flex-start' }}>
                      Clear
                    </Button>
                  )}
                </Confirm>
              )}
            </Stack>
          )}
        </Loaded>
      )}
    </Panel>
  )
}
