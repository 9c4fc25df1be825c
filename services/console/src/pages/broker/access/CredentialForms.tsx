import { Button, Divider, Stack, Switch, Text, TextInput } from '@mantine/core'
import { useState } from 'react'
import {
  type Credential,
  changeCredential,
  createCredential,
  deleteCredential,
  type MadeCredential,
  type Rule,
} from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import { useOnce } from '../../../api/once'
import { Secret } from '../../../ui/Code'
import { Confirm } from '../../../ui/Confirm'
import { Form } from '../../../ui/Form'
import { ConnectedClients } from '../../../ui/Losses'
import { More } from '../../../ui/More'
import { done } from '../../../ui/notify'
import { PasswordInput } from '../../../ui/PasswordInput'
import {
  CredentialLimits,
  hasLimits,
  LIMIT_FIELDS,
  limitsOf,
  limitsSent,
  NO_LIMITS,
} from './CredentialLimits'
import { Gone } from './Gone'
import { GroupSelect } from './GroupSelect'
import { Rotate } from './Rotate'
import { RuleEditor, rulesAreRight } from './RuleEditor'
import { ScramSwitch } from './ScramSwitch'

/** The new password, which no later page shows. */
export function Shown({ made, onClose }: { made: MadeCredential; onClose: () => void }) {
  const { endpoint } = useBroker()
  const name = `${endpoint?.userPrefix ?? ''}${made.user}`
  return (
    <Stack gap="md">
      <Text size="sm">
        User name <span className="mono">{name}</span>
      </Text>
      {made.secret === null ? (
        <Text size="sm">It has the password that you chose. The server stores only a hash of it.</Text>
      ) : (
        <Secret
          name={`Password of ${made.user}`}
          value={made.secret ?? ''}
          fileName={`${made.user}.txt`}
          file={`user: ${name}\npassword: ${made.secret}`}
        />
      )}
      <Button onClick={onClose} style={{ alignSelf: 'flex-start' }}>
        {made.secret === null ? 'Done' : 'I have stored it'}
      </Button>
    </Stack>
  )
}

export function Create({ onMade }: { onMade: (made: MadeCredential) => void }) {
  const { path } = useBroker()
  const [user, setUser] = useState('')
  const [group, setGroup] = useState<string | null>(null)
  const [scram, setScram] = useState(false)
  const [password, setPassword] = useState('')
  const [limits, setLimits] = useState(NO_LIMITS)
  const [rules, setRules] = useState<Rule[]>([])
  const create = useOnce(createCredential)
  const credential = () => ({
    user,
    group,
    scram,
    rules,
    password: password || null,
    ...limitsSent(limits),
  })
  return (
    <Form
      verb="Create credential"
      isDisabled={!rulesAreRight(rules)}
      act={() => create({ path, credential: credential() })}
      onDone={onMade}
    >
      {(wrong) => (
        <>
          <Text size="sm" c="dimmed">
            {password
              ? 'The server stores a hash of the password that you chose under More.'
              : 'The server generates the password and shows it once, in the next step.'}
          </Text>
          <TextInput
            label="User"
            placeholder="pump-7"
            value={user}
            onChange={(event) => setUser(event.currentTarget.value)}
            error={wrong.user}
            maxLength={256}
            required
            withAsterisk={false}
            data-autofocus
          />
          <GroupSelect value={group} onChange={setGroup} error={wrong.group} />
          <ScramSwitch value={scram} onChange={setScram} />
          <More isWrong={LIMIT_FIELDS.some((name) => wrong[name]) || Boolean(wrong.password)}>
            <Stack gap="md" mt="sm">
              <CredentialLimits value={limits} onChange={setLimits} wrong={wrong} />
              <PasswordInput
                label="Password"
                description="One that devices already have. Leave it empty: a generated one is stronger, and faster to check."
                autoComplete="off"
                value={password}
                onChange={(event) => setPassword(event.currentTarget.value)}
                error={wrong.password}
              />
              <OwnRules rules={rules} onChange={setRules} />
            </Stack>
          </More>
        </>
      )}
    </Form>
  )
}

const OwnRules = (props: { rules: Rule[]; onChange: (rules: Rule[]) => void }) => (
  <div>
    <Text size="sm" fw={500} mb={8}>
      Own rules
    </Text>
    <RuleEditor {...props} />
  </div>
)

interface EditProps {
  credential: Credential | undefined
  onRotated: (made: MadeCredential) => void
  onDone: () => void
}

export function Edit({ credential, onRotated, onDone }: EditProps) {
  const { path, can } = useBroker()
  const [before] = useState(credential)
  const [enabled, setEnabled] = useState(before?.enabled ?? true)
  const [group, setGroup] = useState(before?.group ?? null)
  const [rules, setRules] = useState(before?.rules ?? [])
  const [limits, setLimits] = useState(() => limitsOf(before))
  if (!before || !credential) return <Gone title="There is no such credential" onClose={onDone} />
  const { user } = before
  if (!can('access:write')) return <RuleEditor rules={rules} onChange={setRules} isReadOnly />
  return (
    <Stack gap="xl">
      <Form
        verb="Save credential"
        isDisabled={!rulesAreRight(rules)}
        act={(overwrites) =>
          changeCredential(path, before, { enabled, group, rules, ...limitsSent(limits, before) }, overwrites)
        }
        onDone={() => {
          done(`${user} was changed.`)
          onDone()
        }}
      >
        {(wrong) => (
          <>
            <Switch
              label="Enabled"
              description="Disabling a credential disconnects its clients and refuses new ones."
              checked={enabled}
              onChange={(event) => setEnabled(event.currentTarget.checked)}
            />
            <GroupSelect value={group} onChange={setGroup} error={wrong.group} />
            <OwnRules rules={rules} onChange={setRules} />
            <More isOpenAtFirst={hasLimits(limits)} isWrong={LIMIT_FIELDS.some((name) => wrong[name])}>
              <Stack gap="md" mt="sm">
                <CredentialLimits value={limits} onChange={setLimits} wrong={wrong} />
              </Stack>
            </More>
          </>
        )}
      </Form>
      <Divider />
      <Rotate credential={credential} onRotated={onRotated} />
      <Divider />
      <Confirm
        verb="Delete credential"
        title={`Delete ${user}?`}
        loses={
          <>
            <ConnectedClients search={user} isOne={(one) => one.user === user} />, and no device can come back
            with it. {rules.length > 0 && `Its own rules (${rules.length}) are deleted.`}
          </>
        }
        act={() => deleteCredential(path, user)}
        onDone={() => {
          done(`${user} was deleted.`)
          onDone()
        }}
      >
        {(open) => (
          <Button color="red" variant="light" onClick={open} style={{ alignSelf: 'flex-start' }}>
            Delete credential
          </Button>
        )}
      </Confirm>
    </Stack>
  )
}
