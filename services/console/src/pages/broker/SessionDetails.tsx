import { Table, Text } from '@mantine/core'
import type { Schemas } from '../../api/client'
import { bytes, count, duration, plural } from '../../lib/format'
import { Facts } from '../../ui/Stat'
import { Time } from '../../ui/Time'

type Session = Schemas['SessionDetails']

const STATES = { connected: 'connected', offline: 'offline', expired: 'expired' } as const
const RETAIN_HANDLING = ['at each subscription', 'at a new subscription', 'never']
const FILTERS_SHOWN = 200

function waiting(session: Schemas['Session']) {
  const more = session.waiting_is_more ? ' or more' : ''
  return `${plural(session.waiting_messages, 'message')}, ${bytes(session.waiting_bytes)}${more}`
}

/** A session: what waits for it, until when it stays, what it subscribes to. */
export function SessionDetails({ session }: { session: Session }) {
  const inFlight = session.outbound_packet_ids.length
  return (
    <>
      <Facts
        rows={[
          ['State', STATES[session.state]],
          [
            'Offline since',
            session.offline_since_ms ? <Time key="since" at={session.offline_since_ms} /> : '–',
          ],
          ['Waiting', waiting(session)],
          [
            'Oldest waiting',
            session.oldest_waiting_at_ms ? <Time key="oldest" at={session.oldest_waiting_at_ms} /> : '–',
          ],
          ['In flight', `${plural(inFlight, 'message')} not acknowledged`],
          [
            'Lost to limits',
            session.missed_at_least === 0 ? 'none' : `at least ${plural(session.missed_at_least, 'message')}`,
          ],
          ['Expiry', session.expiry_s == null ? 'never' : duration(session.expiry_s)],
          ['Expires', session.expires_at_ms ? <Time key="ends" at={session.expires_at_ms} /> : '–'],
          [
            'Will',
            session.will_delay_s == null
              ? 'none'
              : `${duration(session.will_delay_s)} after the connection ends`,
          ],
        ]}
      />
      <Text fw={600} size="sm" mt="lg" mb={4}>
        {plural(session.subscriptions, 'subscription')}
      </Text>
      {session.filters.length > 0 && (
        <Table.ScrollContainer minWidth={320}>
          <Table verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Topic filter</Table.Th>
                <Table.Th>QoS</Table.Th>
                <Table.Th>Retained messages</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {session.filters.slice(0, FILTERS_SHOWN).map((one) => (
                <Table.Tr key={one.filter}>
                  <Table.Td className="mono">{one.filter}</Table.Td>
                  <Table.Td>{one.qos}</Table.Td>
                  <Table.Td>{RETAIN_HANDLING[one.retain_handling]}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      )}
      {session.filters.length > FILTERS_SHOWN && (
        <Text size="xs" c="dimmed">
          {count(session.filters.length - FILTERS_SHOWN)} more are not shown.
        </Text>
      )}
    </>
  )
}
