import { Alert, Stack, Switch, Text, TextInput } from '@mantine/core'
import { useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { useBroker } from '../../../api/brokers'
import type { Schemas } from '../../../api/client'
import { testAccess } from '../../../api/messages'
import { ruleText } from '../../../lib/rules'
import { Choice } from '../../../ui/Choice'
import { Form } from '../../../ui/Form'
import { Panel } from '../../../ui/Page'
import classes from '../../../ui/ui.module.css'

type Question = Schemas['AccessQuestion']
type Answer = Schemas['AccessAnswer']

/** Tests whether a client may publish or subscribe, and shows the deciding rule. */
export function Tester() {
  const { path } = useBroker()
  const { client = '', user = '', action, topic = '' } = useSearch({ from: '/signed-in/b/$broker/access' })
  const [said, setText] = useState<Question>({
    client_id: client,
    user,
    action: action === 'subscribe' ? 'subscribe' : 'publish',
    topic,
    qos: 1,
  })
  const [answer, setAnswer] = useState<Answer | null>(null)
  const change = (to: Partial<Question>) => {
    setAnswer(null)
    setText((before) => ({ ...before, ...to }))
  }
  return (
    <div className={classes.two}>
      <Panel
        title="Try the rules"
        lead="Nothing is changed, and the client need not be connected. Rules of tokens and of your own service are not known here."
      >
        <Form
          verb="Test"
          act={() => testAccess(path, { ...said, user: said.user || null })}
          onDone={setAnswer}
        >
          {(wrong) => (
            <>
              <TextInput
                label="Client id"
                placeholder="pump-7"
                value={said.client_id}
                onChange={(event) => change({ client_id: event.currentTarget.value })}
                error={wrong.client_id}
                required
                withAsterisk={false}
              />
              <TextInput
                label="User"
                description="Empty: an anonymous client"
                placeholder="pump-7"
                value={said.user ?? ''}
                onChange={(event) => change({ user: event.currentTarget.value })}
                error={wrong.user}
              />
              <Choice
                isWide
                label="Action"
                data={[
                  { value: 'publish', label: 'Publish' },
                  { value: 'subscribe', label: 'Subscribe' },
                ]}
                value={said.action}
                onChange={(value) => change({ action: value as Question['action'] })}
              />
              <TextInput
                label={said.action === 'publish' ? 'Topic' : 'Topic filter'}
                placeholder={said.action === 'publish' ? 'up/pump-7/state' : 'down/pump-7/#'}
                classNames={{ input: 'mono' }}
                value={said.topic}
                onChange={(event) => change({ topic: event.currentTarget.value })}
                error={wrong.topic}
                required
                withAsterisk={false}
              />
              <Choice
                isWide
                label="QoS"
                data={['0', '1', '2'].map((value) => ({ value, label: `QoS ${value}` }))}
                value={String(said.qos ?? 0)}
                onChange={(value) => change({ qos: Number(value) })}
              />
              {said.action === 'publish' && (
                <Switch
                  label="Retain"
                  checked={said.retain ?? false}
                  onChange={(event) => change({ retain: event.currentTarget.checked })}
                />
              )}
            </>
          )}
        </Form>
      </Panel>
      <Panel title="Answer">
        <div role="status">
          {answer ? (
            <Shown answer={answer} />
          ) : (
            <Text size="sm" c="dimmed">
              Allowed or denied, and the rule that decides.
            </Text>
          )}
        </div>
      </Panel>
    </div>
  )
}

const WHOSE: Record<Answer['decided_by'], string> = {
  credential: 'a rule of the credential',
  group: 'a rule of the group',
  broker: 'a rule of all clients of the broker',
  no_rule: 'no rule matches, and a client with rules may do only what they allow',
  no_rules: 'the client has no rule at all, so it may do everything',
  settings: 'the settings of the server',
  protocol: 'MQTT itself',
}

function Shown({ answer }: { answer: Answer }) {
  const { allowed, decided_by, of, reason, rule, rule_index, granted_qos, obstacles } = answer
  return (
    <Stack gap="md">
      <Alert color={allowed ? 'green' : 'red'} variant="light" title={allowed ? '✓ Allowed' : '✕ Denied'}>
        {reason}
      </Alert>
      <Text size="sm">
        Decided by {WHOSE[decided_by]}
        {of && ` ${of}`}.
      </Text>
      {rule && (
        <div className={classes.code}>
          <pre>
            {rule_index != null && `${rule_index + 1}. `}
            {ruleText(rule)}
          </pre>
        </div>
      )}
      {granted_qos != null && <Text size="sm">Granted QoS {granted_qos}.</Text>}
      {obstacles.map((obstacle) => (
        <Alert key={obstacle} color="orange" variant="light" title="The client could not even connect">
          {obstacle}
        </Alert>
      ))}
    </Stack>
  )
}
