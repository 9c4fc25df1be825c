import { ActionIcon, Group } from '@mantine/core'
import { IconChevronDown, IconChevronRight } from '@tabler/icons-react'
import { Link } from '@tanstack/react-router'
import { useCallback, useMemo, useState } from 'react'
import { bytes, count, cut } from '../../../lib/format'
import { type KnownTopic, rowsOf, type TopicNode, treeOf } from '../../../lib/topics'
import { type Column, Rows } from '../../../ui/Rows'
import { Time } from '../../../ui/Time'
import ui from '../../../ui/ui.module.css'

type Row = { node: TopicNode<KnownTopic>; label: string; depth: number }

/** A tree of at most this number of topics is open at first. */
const OPEN_ROWS_MAX = 100

interface TreeProps {
  rows: readonly KnownTopic[]
  /** There are more topics than `rows`. */
  isCut: boolean
  chosen: string | undefined
  onChoose: (topic: string) => void
}

export function Tree({ rows, isCut, chosen, onChoose }: TreeProps) {
  const tree = useMemo(() => treeOf(rows), [rows])
  const [toggled, setToggled] = useState<ReadonlySet<string>>(new Set())
  // A small tree is open, a large one is closed, until somebody says otherwise. A tree that grows while it is read stays as it is.
  const [isSmall] = useState(rows.length <= OPEN_ROWS_MAX)
  const shown = useMemo(
    () => rowsOf(tree, (topic) => toggled.has(topic) !== isSmall),
    [tree, toggled, isSmall],
  )
  const toggle = useCallback((topic: string) => {
    setToggled((before) => {
      const next = new Set(before)
      if (!next.delete(topic)) next.add(topic)
      return next
    })
  }, [])
  const columns = useMemo(
    () => columnsOf({ isCut, chosen, isOpen: (topic) => toggled.has(topic) !== isSmall, toggle }),
    [isCut, chosen, toggled, isSmall, toggle],
  )
  return (
    <Rows
      label="Topics"
      rows={shown}
      columns={columns}
      idOf={({ node }) => node.topic}
      rowPx={36}
      rowsShown={16}
      hasOwnControl
      onOpen={({ node }) => (node.value ? onChoose(node.topic) : toggle(node.topic))}
    />
  )
}

interface ColumnsProps {
  isCut: boolean
  chosen: string | undefined
  isOpen: (topic: string) => boolean
  toggle: (topic: string) => void
}

const columnsOf = ({ isCut, chosen, isOpen, toggle }: ColumnsProps): Column<Row>[] => [
  {
    key: 'topic',
    header: 'Topic',
    width: 'minmax(0, 1fr)',
    cell: (row) => (
      <Label row={row} isChosen={row.node.topic === chosen} isOpen={isOpen(row.node.topic)} toggle={toggle} />
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
          // The whole topic, because several topics have a level of this name.
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
