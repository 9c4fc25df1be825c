import { Button, Group } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconBinaryTree2 } from '@tabler/icons-react'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { memo, useCallback, useMemo, useRef } from 'react'
import { isStopped, useBroker } from '../../api/brokers'
import { type Retained, retainedQuery } from '../../api/live'
import { filterProblem, knownTopics, type SeenMessage } from '../../lib/topics'
import live from '../../live/live.module.css'
import { useSeenTopics } from '../../live/useSeenTopics'
import { tailDot, tailText, useTail } from '../../live/useTail'
import { Page, Panel } from '../../ui/Page'
import { Search } from '../../ui/Search'
import { Empty, Loaded } from '../../ui/State'
import { Term } from '../../ui/Term'
import ui from '../../ui/ui.module.css'
import { Branches } from './topics/Branches'
import { Tree } from './topics/Tree'
import { Value } from './topics/Value'

/** Topics with a retained message, and those that the page sees messages of, as a tree. */
export function Topics() {
  const { broker, path, can } = useBroker()
  const isOff = isStopped(broker)
  const { topic, filter = '' } = useSearch({ from: '/signed-in/b/$broker/topics' })
  const navigate = useNavigate({ from: '/b/$broker/topics' })
  const wrong = filter === '' ? null : filterProblem(filter)
  const [wanted] = useDebouncedValue(wrong === null && filter !== '' ? filter : undefined, 200)
  const query = useQuery({ ...retainedQuery(path, wanted), placeholderData: keepPreviousData })
  const { view, state } = useTail(path, can('messages:read') && !isOff ? (wanted ?? '#') : null)
  const seen = useSeenTopics(view.messages, wanted ?? '#')
  /** The filter of the topics on screen: until the topics of a new filter have loaded, the page still shows the old ones (`keepPreviousData`). */
  const shownFilter = useRef(wanted)
  if (!query.isPlaceholderData) shownFilter.current = wanted
  const change = useCallback(
    (to: { topic?: string; filter?: string }) =>
      void navigate({ search: (before) => ({ ...before, ...to }), replace: true, resetScroll: false }),
    [navigate],
  )
  return (
    <Page
      title="Topics"
      lead={
        <>
          <Term of="topic">Topics</Term> with a <Term of="retained">retained message</Term>, and those whose
          messages pass while this page is open.
        </>
      }
    >
      <div className={live.split} style={{ gridTemplateColumns: topic ? undefined : 'minmax(0, 1fr)' }}>
        <Panel isFlush>
          <Group className={ui.tableBar} justify="space-between">
            <Search
              label="Topic filter"
              placeholder="Topic filter, such as plant/+/state"
              value={filter}
              onChange={(filter) => change({ filter: filter || undefined })}
              error={wrong}
              w={{ base: '100%', xs: 320 }}
            />
            {can('messages:read') && (
              <span className={live.status}>
                <span className={live.dot} data-kind={tailDot(state)} aria-hidden="true" />
                <span role="status">
                  {isOff ? 'The broker is stopped and accepts no clients' : tailText(state, wanted ?? '#')}
                </span>
              </span>
            )}
          </Group>
          <Loaded query={query} height={560}>
            {({ items, isCut }) => (
              <Known
                key={shownFilter.current ?? '#'}
                items={items}
                isCut={isCut}
                seen={seen}
                filter={wanted}
                chosen={topic}
                onChange={change}
              />
            )}
          </Loaded>
        </Panel>
        {topic && (
          <Value
            key={topic}
            topic={topic}
            seen={seen.get(topic)}
            onClose={() => change({ topic: undefined })}
          />
        )}
      </div>
    </Page>
  )
}

interface KnownProps {
  items: readonly Retained[]
  isCut: boolean
  seen: ReadonlyMap<string, SeenMessage>
  filter: string | undefined
  chosen: string | undefined
  onChange: (to: { topic?: string; filter?: string }) => void
}

/** Memoised: it renders only when the topics change, while the page around it renders with every batch of messages. */
const Known = memo(function Known({ items, isCut, seen, filter, chosen, onChange }: KnownProps) {
  const known = useMemo(() => knownTopics(items, seen), [items, seen])
  if (known.length === 0)
    return <NoTopics clear={filter === undefined ? undefined : () => onChange({ filter: undefined })} />
  return (
    <>
      <Tree rows={known} isCut={isCut} chosen={chosen} onChoose={(topic) => onChange({ topic })} />
      {/* The API returned only the first topics, so links lead to the rest. */}
      {isCut && <Branches filter={filter} shown={items.length} />}
    </>
  )
})

/** `clear` takes the filter away, where one is set. */
function NoTopics({ clear }: { clear: (() => void) | undefined }) {
  const { broker } = useBroker()
  if (clear) {
    return (
      <Empty
        title="No topic matches this filter"
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
      title="No topic yet"
      action={
        <Button component={Link} to={`/b/${broker.name}/live`} variant="default">
          Publish a message
        </Button>
      }
    >
      A topic appears here with its first message while this page is open. With a retained message, it stays
      until the message is cleared or expires.
    </Empty>
  )
}
