import { Button, Group, TextInput } from '@mantine/core'
import { useDebouncedValue } from '@mantine/hooks'
import { IconBinaryTree2, IconSearch } from '@tabler/icons-react'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { isStopped, useBroker } from '../../api/brokers'
import { retainedQuery } from '../../api/live'
import { filterProblem, knownTopics } from '../../lib/topics'
import live from '../../live/live.module.css'
import { useSeenTopics } from '../../live/useSeenTopics'
import { useTail } from '../../live/useTail'
import { Page, Panel } from '../../ui/Page'
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
  const { view, isOpen } = useTail(path, can('messages:read') && !isOff ? (wanted ?? '#') : null)
  const seen = useSeenTopics(view.messages, wanted ?? '#')
  const change = (to: { topic?: string; filter?: string }) =>
    void navigate({ search: (before) => ({ ...before, ...to }), replace: true, resetScroll: false })
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
            {can('messages:read') && (
              <span className={live.status}>
                <span className={live.dot} data-kind={isOpen ? 'connected' : 'lost'} aria-hidden="true" />
                {isOff
                  ? 'The broker takes no clients now'
                  : isOpen
                    ? `Listening to ${wanted ?? '#'}`
                    : 'Connecting'}
              </span>
            )}
          </Group>
          <Loaded query={query} height={560}>
            {({ items, isCut }) => {
              const known = knownTopics(items, seen)
              return known.length === 0 ? (
                <NoTopics clear={wanted === undefined ? undefined : () => change({ filter: undefined })} />
              ) : (
                <>
                  <Tree rows={known} isCut={isCut} chosen={topic} onChoose={(to) => change({ topic: to })} />
                  {isCut && <Branches filter={wanted} shown={items.length} />}
                </>
              )
            }}
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
          Publish one from this page
        </Button>
      }
    >
      A topic appears here with its first message while this page is open. One that is published with the
      retain flag stays until another one takes its place, or it expires.
    </Empty>
  )
}
