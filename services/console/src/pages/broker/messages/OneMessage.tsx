import { Alert, Badge, Stack, Text } from '@mantine/core'
import { useBroker } from '../../../api/brokers'
import type { MessageReceiver, ReceiverState } from '../../../api/stored'
import { type Followed, type FollowedMessage, receiptOf } from '../../../lib/follow'
import { absolute, bytes, count, plural } from '../../../lib/format'
import { ClientLink } from '../../../ui/ClientLink'
import { type Column, Rows } from '../../../ui/Rows'
import { Facts } from '../../../ui/Stat'
import { Empty } from '../../../ui/State'
import { Time } from '../../../ui/Time'
import ui from '../../../ui/ui.module.css'
import { GONE, timeText } from './gone'
import { StoredFor } from './StoredFor'

const STATES: Record<ReceiverState, { label: string; color: string }> = {
  waiting: { label: 'waits: offline', color: 'orange' },
  expired: { label: 'expired first', color: 'red' },
  in_flight: { label: 'in flight', color: 'gray' },
  acknowledged: { label: 'acknowledged', color: 'green' },
}

interface OneMessageProps {
  message: FollowedMessage
  acknowledged: Followed['acknowledged']
}

/** A message: where it is stored, and how far each receiver is with it. */
export function OneMessage({ message, acknowledged: receipts }: OneMessageProps) {
  const { acknowledged, in_flight, waiting, receivers, gone } = message
  const more = acknowledged + in_flight + waiting - receivers.length
  return (
    <>
      <div role="status">
        {gone && (
          <Alert
            color={gone.why === 'acknowledged' ? 'green' : 'orange'}
            variant="light"
            mb="md"
            title={GONE[gone.why].title}
          >
            {GONE[gone.why].text(message, gone)}
          </Alert>
        )}
      </div>
      <Facts
        rows={[
          ['Published', <Time key="at" at={message.at_ms} />],
          [
            'Stored at',
            <span key="position" className="mono">
              {message.position}
            </span>,
          ],
          ['QoS', message.qos],
          ['Payload', bytes(message.payload_bytes)],
          ['Expires', message.expires_at_ms ? <Time key="expires" at={message.expires_at_ms} /> : 'never'],
          [
            'Stored for',
            <Stack key="filters" gap={0}>
              {message.filters.map((filter) => (
                <StoredFor key={filter} filter={filter} />
              ))}
            </Stack>,
          ],
        ]}
      />
      <Text size="sm" mt="md" mb="xs" role="status">
        {gone && 'Before it was removed: '}
        {plural(acknowledged, 'receiver')} acknowledged it, {count(in_flight)} in flight, {count(waiting)}{' '}
        waiting.
      </Text>
      {/* Rows have a padding of their own, so that their text stands below the other text of the drawer. */}
      <div className={ui.drawerRows}>
        <Receivers message={message} receipts={receipts} />
      </div>
      {more > 0 && (
        <Text size="xs" c="dimmed" mt="xs">
          {count(more)} more receivers.
        </Text>
      )}
    </>
  )
}

interface ReceiversProps {
  message: FollowedMessage
  receipts: Followed['acknowledged']
}

function Receivers({ message, receipts }: ReceiversProps) {
  const { broker } = useBroker()
  const columns: Column<MessageReceiver>[] = [
    {
      key: 'client',
      header: 'Receiver',
      width: 'minmax(0, 1fr)',
      isWrapped: true,
      cell: ({ client_id, filter }) =>
        client_id ? <ClientLink broker={broker.name} id={client_id} /> : <StoredFor filter={filter} />,
    },
    {
      key: 'state',
      header: 'State',
      width: 'minmax(170px, 1fr)',
      isWrapped: true,
      cell: (receiver) => (
        <>
          <Badge variant="light" color={STATES[receiver.state].color} tt="none" fw={500}>
            {receiver.state === 'waiting' && !receiver.client_id ? 'waiting' : STATES[receiver.state].label}
          </Badge>
          <Text size="xs" c="dimmed">
            {whenText(message, receiver, receipts)}
          </Text>
        </>
      ),
    },
  ]
  return (
    <Rows
      label="Receivers"
      rows={message.receivers}
      columns={columns}
      rowPx={56}
      idOf={({ client_id, filter }) => `${client_id} ${filter}`}
      empty={
        <Empty title="No session waits for this message">
          Its receivers have acknowledged it, or their sessions have ended.
        </Empty>
      }
    />
  )
}

/** When a receiver came to its state, as far as this page knows. */
function whenText(message: FollowedMessage, receiver: MessageReceiver, receipts: Followed['acknowledged']) {
  if (receiver.state === 'expired' && message.expires_at_ms) return `at ${timeText(message.expires_at_ms)}`
  const when = receipts.get(receiptOf(message, receiver))
  if (receiver.state !== 'acknowledged' || !when) return null
  // Before the page was opened, only the publication is known, and when an offline session's connection ended.
  if (when.from === message.at_ms)
    return `before ${timeText(Math.min(when.to, receiver.acknowledged_by_ms ?? when.to))}`
  return (
    <span
      title={`${absolute(when.from)} to ${absolute(when.to)}`}
    >{`${timeText(when.from)}–${timeText(when.to)}`}</span>
  )
}
