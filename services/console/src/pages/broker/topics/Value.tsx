import { Anchor, Button, CloseButton, Group, Stack, Text } from '@mantine/core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useBroker } from '../../../api/brokers'
import type { Schemas } from '../../../api/client'
import { clearRetained, retainedMessageQuery } from '../../../api/live'
import { isMissing } from '../../../api/problem'
import { storedMessagesQuery } from '../../../api/stored'
import { bytes, legible, plural } from '../../../lib/format'
import { fromBase64 } from '../../../lib/payload'
import { storing } from '../../../lib/storing'
import type { SeenMessage } from '../../../lib/topics'
import { Payload } from '../../../live/MessageView'
import { Confirm } from '../../../ui/Confirm'
import { Long } from '../../../ui/Long'
import { done } from '../../../ui/notify'
import { Panel } from '../../../ui/Page'
import { Facts } from '../../../ui/Stat'
import { Empty, Loaded } from '../../../ui/State'
import { Time } from '../../../ui/Time'

interface ValueProps {
  topic: string
  /** The last message that the page has seen. */
  seen: SeenMessage | undefined
  onClose: () => void
}

/** A topic: its retained message, the last message that was seen, and for whom the server stores it. */
export function Value({ topic, seen, onClose }: ValueProps) {
  const { path } = useBroker()
  const query = useQuery(retainedMessageQuery(path, topic))
  const isGone = isMissing(query.error)
  return (
    <Panel
      title={<Long text={topic} what="topic" />}
      actions={<CloseButton aria-label="Close" onClick={onClose} />}
    >
      <Stack gap="md">
        {seen && <Last seen={seen} />}
        {isGone && !seen && (
          <Empty
            title="There is no retained message"
            action={
              <Anchor component={Link} to={`/b/${path.broker}/live`} size="sm">
                Publish a message
              </Anchor>
            }
          >
            It was cleared, it expired, or there never was one.
          </Empty>
        )}
        {isGone && seen && (
          <Text size="sm" c="dimmed">
            It has no retained message.
          </Text>
        )}
        {!isGone && (
          <Loaded query={query}>{(data) => <Retained topic={topic} data={data} onClose={onClose} />}</Loaded>
        )}
        <Subscriptions topic={topic} />
      </Stack>
    </Panel>
  )
}

const Heading = ({ children }: { children: string }) => (
  <Text fw={600} size="sm">
    {children}
  </Text>
)

function Last({ seen }: { seen: SeenMessage }) {
  return (
    <>
      <Heading>Last message</Heading>
      <Facts
        rows={[
          ['Seen', <Time key="at" at={seen.at} />],
          ['QoS', seen.qos],
          ['Size', bytes(seen.bytes)],
        ]}
      />
      {seen.payload && <Payload payload={seen.payload} />}
    </>
  )
}

type RetainedMessage = Awaited<ReturnType<NonNullable<ReturnType<typeof retainedMessageQuery>['queryFn']>>>

interface RetainedProps {
  topic: string
  data: RetainedMessage
  onClose: () => void
}

function Retained({ topic, data, onClose }: RetainedProps) {
  const { path, can } = useBroker()
  const client = useQueryClient()
  const { payload, payload_base64, payload_bytes, qos, expires_at_ms, properties } = data
  return (
    <>
      <Heading>Retained message</Heading>
      <Facts
        rows={[
          ['QoS', qos],
          ['Size', bytes(payload_bytes)],
          ['Expires', expires_at_ms ? <Time key="at" at={expires_at_ms} /> : 'never'],
          ...propertyRows(properties),
        ]}
      />
      <Payload
        payload={payload_base64 ? fromBase64(payload_base64) : new TextEncoder().encode(payload ?? '')}
      />
      {can('clients:write') && (
        <Confirm
          verb="Clear"
          title="Clear the retained message?"
          loses={`The message of ${bytes(payload_bytes)} is deleted: new subscriptions to ${topic} no longer get it. Clients that have received it keep it.`}
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
    </>
  )
}

/** Filters of stored sessions and webhooks that match the topic. */
function Subscriptions({ topic }: { topic: string }) {
  const { broker, path } = useBroker()
  const query = useQuery(storedMessagesQuery(path, topic))
  return (
    <>
      <Heading>Stored for</Heading>
      <Loaded query={query} height={40}>
        {({ filters }) =>
          filters.length === 0 ? (
            <Text size="sm" c="dimmed">
              No stored session subscribes to it. Connected clients get its messages at once.
            </Text>
          ) : (
            <Facts
              rows={filters.map(({ filter, subscriptions }) => {
                const { filter: own, webhook } = storing(filter)
                const said = webhook ? `webhook ${webhook}` : plural(subscriptions, 'subscription')
                return [
                  <Anchor
                    key={filter}
                    component={Link}
                    to={`/b/${broker.name}/streams`}
                    search={{ stream: filter } as never}
                    size="sm"
                    className="mono"
                  >
                    {own}
                  </Anchor>,
                  said,
                ]
              })}
            />
          )
        }
      </Loaded>
      <Group gap="md">
        <Anchor component={Link} to={`/b/${broker.name}/messages`} search={{ topic } as never} size="sm">
          Where are its messages?
        </Anchor>
        <Anchor component={Link} to={`/b/${broker.name}/live`} search={{ filters: topic } as never} size="sm">
          Watch it live
        </Anchor>
      </Group>
    </>
  )
}

function propertyRows(properties: Schemas['MessageProperties']): [string, string][] {
  const { content_type, response_topic, correlation_data_base64, user_properties } = properties
  const standard: [string, string | null | undefined][] = [
    ['Content type', content_type],
    ['Response topic', response_topic],
    ['Correlation data (base64)', correlation_data_base64],
  ]
  return [
    ...standard.filter((row): row is [string, string] => typeof row[1] === 'string'),
    ...(user_properties ?? []).map(({ name, value }): [string, string] => [
      `User property ${legible(name)}`,
      legible(value),
    ]),
  ]
}
