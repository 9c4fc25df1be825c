import { ActionIcon, Anchor, Group, List, Text } from '@mantine/core'
import { useLocalStorage } from '@mantine/hooks'
import { IconX } from '@tabler/icons-react'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { isStopped, useBroker } from '../../api/brokers'
import { now } from '../../lib/clock'
import { isFirstDay } from '../../lib/firstDay'
import { count } from '../../lib/format'
import { isLoopback } from '../../lib/host'
import { mosquittoOptions, targetOf } from '../../lib/snippets'
import classes from '../../live/live.module.css'
import { Messages } from '../../live/Messages'
import { tailDot, tailText, useTail } from '../../live/useTail'
import { useReceivedText } from '../../ui/announce'
import { Code } from '../../ui/Code'
import { Flag } from '../../ui/Flag'
import { Panel } from '../../ui/Page'
import ui from '../../ui/ui.module.css'

const HEIGHT = 240
/** New rows are highlighted below this rate. Above it, all rows would be highlighted all the time. */
const HIGHLIGHTED_PER_S_MAX = 3

/** Endpoint, two commands and a stream that already listens: for a day, or until somebody says that they know. Later, the charts
 * stand first. */
export function FirstRun() {
  const { broker } = useBroker()
  const [isHidden, setHidden] = useLocalStorage({
    key: `first-run ${broker.name}`,
    defaultValue: false,
    getInitialValueInEffect: false,
  })
  // The time at which the page was opened, so that the panel does not vanish while somebody reads it.
  const [openedAt] = useState(now)
  if (isHidden || !isFirstDay(broker.created_at_ms, openedAt)) return null
  return (
    <div className={`${ui.two} ${ui.twoBottom}`}>
      <FirstSteps onHide={() => setHidden(true)} />
      <FirstMessages />
    </div>
  )
}

function FirstSteps({ onHide }: { onHide: () => void }) {
  const { broker, endpoint } = useBroker()
  const isHere = endpoint ? isLoopback(endpoint.host) : false
  const at = endpoint ? mosquittoOptions(targetOf(endpoint)) : ''
  const isOpen = endpoint?.isOpen ?? false
  return (
    <Panel
      title={isOpen ? 'Send a first message' : 'Connect a first device'}
      lead={isHere ? 'Running on this machine. Nobody else can reach it yet.' : undefined}
      actions={
        <ActionIcon variant="subtle" color="gray" aria-label="Hide the first steps" onClick={onHide}>
          <IconX size={16} />
        </ActionIcon>
      }
    >
      {endpoint === null && (
        <Text size="sm">
          This server has no listener for MQTT. Start it with <Flag>--mqtt-listen</Flag>.
        </Text>
      )}
      {endpoint && (
        <Group gap="xs">
          <Code text={`mosquitto_sub ${at} -t 'hello/#' -v`} label="the subscribe command" />
          <Code text={`mosquitto_pub ${at} -t hello/world -m hi`} label="the publish command" />
        </Group>
      )}
      <Text size="sm" fw={500} mt="md" mb={4}>
        Next
      </Text>
      <List size="sm" spacing={4}>
        <List.Item>
          <Anchor component={Link} to={`/b/${broker.name}/connect`} inherit>
            Connect a device
          </Anchor>{' '}
          with a snippet for its library
        </List.Item>
        <List.Item>
          <Anchor component={Link} to={`/b/${broker.name}/access`} inherit>
            Create a credential
          </Anchor>
          {isOpen ? ', so that not everybody may connect' : '. USER and PASSWORD stand for it above'}
        </List.Item>
        <List.Item>
          <Anchor component={Link} to={`/b/${broker.name}/live`} inherit>
            Publish a message in the console
          </Anchor>
        </List.Item>
        {isHere && <Further />}
      </List>
    </Panel>
  )
}

/** Next steps for the owner of this machine. */
function Further() {
  const { broker } = useBroker()
  return (
    <>
      <List.Item>
        <Anchor component={Link} to={`/b/${broker.name}/sessions`} inherit>
          See it survive a kill
        </Anchor>
        : store a session, publish with <Flag>-q 1</Flag>, kill the server, and start it again
      </List.Item>
      <List.Item>
        Open it to the network:{' '}
        <Anchor component={Link} to="/org" inherit>
          invite people
        </Anchor>
        , so that they have accounts, and start it with TLS (<Flag>--tls-dir</Flag>)
      </List.Item>
    </>
  )
}

const STOPPED = 'The broker is stopped: it accepts no clients, and this page cannot listen.'

/** Already subscribed to everything. */
function FirstMessages() {
  const { broker, path } = useBroker()
  const isOff = isStopped(broker)
  const { view, state } = useTail(path, isOff ? null : '#')
  useReceivedText(view.received)
  return (
    <Panel isFlush>
      <div className={classes.bar}>
        <span className={classes.status}>
          <span className={classes.dot} data-kind={tailDot(state)} aria-hidden="true" />
          <span role="status">{isOff ? STOPPED : tailText(state, '#')}</span>
          {(state.isOpen || view.received > 0) && (
            <span>
              {count(view.received)} received, {count(view.perSecond)}/s
            </span>
          )}
        </span>
      </div>
      <Messages
        messages={view.messages}
        height={HEIGHT}
        hint="Paste the second command into a terminal: its message appears here."
        isNewShown={view.perSecond < HIGHLIGHTED_PER_S_MAX}
      />
    </Panel>
  )
}
