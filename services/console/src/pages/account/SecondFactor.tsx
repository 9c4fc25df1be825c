import { Button, Group, PasswordInput, Stack, Text } from '@mantine/core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import {
  beginSecondFactor,
  confirmSecondFactor,
  type DeviceKey,
  disableSecondFactor,
  newRecoveryCodes,
  type SecondFactor as State,
  secondFactorQuery,
} from '../../api/account'
import { useOnce } from '../../api/once'
import { plural } from '../../lib/format'
import { Code, Secret } from '../../ui/Code'
import { Form } from '../../ui/Form'
import { done } from '../../ui/notify'
import { Panel } from '../../ui/Page'
import { Qr } from '../../ui/Qr'
import { Facts } from '../../ui/Stat'
import { Loaded } from '../../ui/State'
import { Time } from '../../ui/Time'
import { CodeInput } from './CodeInput'

/** A code only proves who asks, so a later one does not make another request of it. */
const anyCode = () => true

/** With fewer left, the panel asks for new ones. */
const CODES_LEFT_MIN = 3

/** A code of an authenticator app, asked for after the password. */
export function SecondFactor() {
  const client = useQueryClient()
  const query = useQuery(secondFactorQuery)
  const [codes, setCodes] = useState<string[] | null>(null)
  const again = () => client.invalidateQueries({ queryKey: ['me'] })
  return (
    <Panel
      title="Second factor"
      lead="The sign-in asks for a code of your authenticator app after your password, so that a stolen password alone opens nothing."
    >
      {codes ? (
        <Codes codes={codes} onStored={() => setCodes(null)} />
      ) : (
        <Loaded query={query} height={120}>
          {(state) => {
            const onCodes = (made: string[]) => {
              setCodes(made)
              void again()
            }
            return state.enabled ? (
              <On state={state} onCodes={onCodes} again={again} />
            ) : (
              <Off onCodes={onCodes} />
            )
          }}
        </Loaded>
      )}
    </Panel>
  )
}

function Codes({ codes, onStored }: { codes: string[]; onStored: () => void }) {
  return (
    <Stack gap="md">
      <Text size="sm">
        Each of these codes replaces a code of the app once. Store them where you find them when your device
        is lost, such as in a password manager. Codes from before are void.
      </Text>
      <Secret name="Recovery codes" value={codes.join('\n')} fileName="millrace-recovery-codes.txt" />
      <Group>
        <Button onClick={onStored}>I have stored them</Button>
      </Group>
    </Stack>
  )
}

function Off({ onCodes }: { onCodes: (codes: string[]) => void }) {
  const [password, setPassword] = useState('')
  const [key, setKey] = useState<DeviceKey | null>(null)
  if (key) return <FirstCode deviceKey={key} onCodes={onCodes} onCancel={() => setKey(null)} />
  return (
    <Form
      verb="Set up second factor"
      isDisabled={password === ''}
      act={() => beginSecondFactor(password)}
      onDone={(made) => {
        setPassword('')
        setKey(made)
      }}
    >
      {(wrong) => <Password value={password} onChange={setPassword} error={wrong.password} />}
    </Form>
  )
}

interface FirstCodeProps {
  deviceKey: DeviceKey
  onCodes: (codes: string[]) => void
  onCancel: () => void
}

/** The app knows the secret when its first code is right. */
function FirstCode({ deviceKey, onCodes, onCancel }: FirstCodeProps) {
  const [code, setCode] = useState('')
  const confirm = useOnce(confirmSecondFactor, anyCode)
  return (
    <Form
      verb="Turn on second factor"
      isDisabled={code === ''}
      act={() => confirm({ code })}
      onDone={({ recovery_codes }) => {
        done('The second factor is on. Your other browsers were signed out.')
        onCodes(recovery_codes)
      }}
      onCancel={onCancel}
    >
      {(wrong) => (
        <>
          <Text size="sm">
            Scan this QR code with your authenticator app, then type the code that the app shows. You have ten
            minutes.
          </Text>
          <Qr text={deviceKey.uri} label="QR code with the secret for your authenticator app" />
          <div>
            <Text size="sm" mb={4}>
              Cannot scan it? Type this secret into the app:
            </Text>
            <Code text={deviceKey.secret} label="the secret" isWrapped />
          </div>
          <CodeInput value={code} onChange={setCode} error={wrong.code} />
        </>
      )}
    </Form>
  )
}

interface OnProps {
  state: State
  onCodes: (codes: string[]) => void
  again: () => Promise<void>
}

function On({ state, onCodes, again }: OnProps) {
  const [act, setAct] = useState<'renew' | 'off' | null>(null)
  const close = () => setAct(null)
  const left = state.recovery_codes_left
  const renew = useOnce(newRecoveryCodes, anyCode)
  return (
    <Stack gap="md">
      <Facts
        rows={[
          [
            'State',
            state.enabled_at ? (
              <span key="on">
                turned on <Time at={state.enabled_at} />
              </span>
            ) : (
              'on'
            ),
          ],
          [
            'Recovery codes',
            `${plural(left, 'code')} left${left < CODES_LEFT_MIN ? ': make new ones before you need them' : ''}`,
          ],
        ]}
      />
      {act === null && (
        <Group gap="xs">
          <Button variant="default" onClick={() => setAct('renew')}>
            New recovery codes
          </Button>
          <Button variant="default" onClick={() => setAct('off')}>
            Turn off
          </Button>
        </Group>
      )}
      {act === 'renew' && (
        <WithCode
          verb="Make new recovery codes"
          lead="The codes from before stop working at once."
          act={renew}
          onDone={({ recovery_codes }) => onCodes(recovery_codes)}
          onCancel={close}
        />
      )}
      {act === 'off' && (
        <WithCode
          verb="Turn off second factor"
          lead="The sign-in then asks for your password alone, and the recovery codes are void."
          act={disableSecondFactor}
          onDone={() => {
            done('The second factor is off.')
            void again()
          }}
          onCancel={close}
        />
      )}
    </Stack>
  )
}

interface WithCodeProps<T> {
  verb: string
  lead: string
  act: (said: { password: string; code: string }) => Promise<T>
  onDone: (result: T) => void
  onCancel: () => void
}

function WithCode<T>({ verb, lead, act, onDone, onCancel }: WithCodeProps<T>) {
  const [password, setPassword] = useState('')
  const [code, setCode] = useState('')
  return (
    <Form
      verb={verb}
      isDisabled={password === '' || code === ''}
      act={() => act({ password, code })}
      onDone={onDone}
      onCancel={onCancel}
    >
      {(wrong) => (
        <>
          <Text size="sm">{lead}</Text>
          <Password value={password} onChange={setPassword} error={wrong.password} />
          <CodeInput value={code} onChange={setCode} error={wrong.code} takesRecovery />
        </>
      )}
    </Form>
  )
}

interface PasswordProps {
  value: string
  onChange: (password: string) => void
  error?: string
}

function Password({ value, onChange, error }: PasswordProps) {
  return (
    <PasswordInput
      label="Your password"
      autoComplete="current-password"
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      error={error}
    />
  )
}
