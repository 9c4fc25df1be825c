import { ActionIcon, Group } from '@mantine/core'
import { IconChevronDown, IconChevronRight } from '@tabler/icons-react'
import { Link } from '@tanstack/react-router'
import { useMemo, useState } from 'react'
import { bytes, count, cut } from '../../../lib/format'
import { type KnownTopic, rowsOf, type TopicNode, treeOf } from '../../../lib/topics'
import { type Column, Rows } from '../../../ui/Rows'
import { Time } from '../../../ui/Time'
import ui from '../../../ui/ui.module.css'

type Row = { node: TopicNode<KnownTopic>; label: string; depth: number }

interface TreeProps {
  rows: KnownTopic[]
  /** There are more topics than `rows`. */
  isCut: boolean
  chosen: string | undefined
  onChoose: (topic: string) => void
}

export function Tree({ rows, isCut, chosen, onChoose }: TreeProps) {
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
      cell: ({ node }) =>
        node.children.size > 0 ? `${count(node.count - (node.value ? 1 : 0))}${isCut ? '+' : ''}` : '',
    },
    {
      key: 'retained',
      header: 'Retained',
      width: '64px',
      isExtra: true,
      cell: ({ node }) => (node.value?.isRetained ? 'yes' : ''),
    },
    {
      key: 'seen',
      header: 'Seen',
      width: '72px',
      isExtra: true,
      cell: ({ node }) => (node.value?.seen ? <Time at={node.value.seen.at} /> : ''),
    },
    {
      key: 'size',
      header: 'Size',
      width: '76px',
      isNumber: true,
      cell: ({ node }) => (node.value ? bytes(node.value.bytes) : ''),
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
  const said = label === '' ? '(empty level)' : cut(label)
  return (
    <Group gap={4} wrap="nowrap" style={{ paddingLeft: depth * 20 }}>
      {node.children.size > 0 ? (
        <ActionIcon
          size={24}
          variant="subtle"
          color="gray"
          aria-expanded={isOpen}
          aria-label={`${isOpen ? 'Close' : 'Open'} ${cut(node.topic)}`}
          onClick={() => toggle(node.topic)}
        >
          {isOpen ? <IconChevronDown size={16} /> : <IconChevronRight size={16} />}
        </ActionIcon>
      ) : (
        <span style={{ width: 24, flex: 'none' }} />
      )}
      {node.value ? (
        <Link
          to="."
          search={(before) => ({ ...before, topic: node.topic })}
          className={`mono ${ui.target}`}
          title={cut(node.topic, 1_000)}
          // Levels of several topics are called the same.
          aria-label={cut(node.topic)}
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
