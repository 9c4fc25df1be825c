import { Button, Group, Stack, Text } from '@mantine/core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import {
  beginSecondFactor,
  confirmSecondFactor,
  type DeviceKey,
  disableSecondFactor,
  newRecoveryCodes,
  type Proof,
  type SecondFactor as State,
  secondFactorQuery,
} from '../../api/account'
import { useOnce } from '../../api/once'
import { plural } from '../../lib/format'
import { Code } from '../../ui/Code'
import { Form } from '../../ui/Form'
import { done } from '../../ui/notify'
import { Panel } from '../../ui/Page'
import { Qr } from '../../ui/Qr'
import { Facts } from '../../ui/Stat'
import { Loaded } from '../../ui/State'
import { Time } from '../../ui/Time'
import { CodeInput } from './CodeInput'
import { ProofInput, useProof } from './ProofInput'
import { RecoveryCodes } from './RecoveryCodes'

/** For `useOnce`: a repetition with another code is the same request, because the code only proves who asks. */
const anyCode = () => true

/** With fewer left, the panel asks for new ones. */
const CODES_LEFT_MIN = 3

/** The authenticator app, and the recovery codes of all second factors. */
export function SecondFactor() {
  const client = useQueryClient()
  const query = useQuery(secondFactorQuery)
  const [codes, setCodes] = useState<string[] | null>(null)
  const reload = () => client.invalidateQueries({ queryKey: ['me'] })
  return (
    <Panel
      title="Second factor"
      lead="The sign-in asks for a code of your authenticator app, or for a passkey, after your password. A stolen password is then not enough to sign in."
    >
      {codes ? (
        <RecoveryCodes codes={codes} onStored={() => setCodes(null)} />
      ) : (
        <Loaded query={query} height={120}>
          {(state) => {
            const onCodes = (made: string[]) => {
              // An account with a passkey has recovery codes already.
              setCodes(made.length > 0 ? made : null)
              void reload()
            }
            return state.enabled ? (
              <On state={state} onCodes={onCodes} reload={reload} />
            ) : (
              <SetUp onCodes={onCodes} />
            )
          }}
        </Loaded>
      )}
    </Panel>
  )
}

interface SetUpProps {
  onCodes: (codes: string[]) => void
  onCancel?: () => void
}

/** Sets up the authenticator app. */
function SetUp({ onCodes, onCancel }: SetUpProps) {
  const proof = useProof()
  const [key, setKey] = useState<DeviceKey | null>(null)
  if (key) return <FirstCode deviceKey={key} onCodes={onCodes} onCancel={onCancel ?? (() => setKey(null))} />
  return (
    <Form
      verb="Set up second factor"
      isDisabled={!proof.isReady}
      act={async () => beginSecondFactor(await proof.proof())}
      onDone={(made) => {
        proof.clear()
        setKey(made)
      }}
      onCancel={onCancel}
    >
      {(wrong) => <ProofInput of={proof} confirms="the second factor" wrong={wrong} />}
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
  reload: () => Promise<void>
}

function On({ state, onCodes, reload }: OnProps) {
  const [act, setAct] = useState<'set-up' | 'renew' | 'off' | null>(null)
  const close = () => setAct(null)
  const left = state.recovery_codes_left
  const renew = useOnce(newRecoveryCodes, anyCode)
  return (
    <Stack gap="md">
      <Facts
        rows={[
          [
            'Authenticator app',
            state.app_enabled_at ? (
              <span key="on">
                turned on <Time at={state.app_enabled_at} />
              </span>
            ) : (
              'none'
            ),
          ],
          ['Passkeys', state.passkeys === 0 ? 'none' : plural(state.passkeys, 'passkey')],
          [
            'Recovery codes',
            `${plural(left, 'code')} left${left < CODES_LEFT_MIN ? ': create new ones before you need them' : ''}`,
          ],
        ]}
      />
      {act === null && (
        <Group gap="xs">
          <Button variant="default" onClick={() => setAct('renew')}>
            New recovery codes
          </Button>
          {state.app_enabled_at ? (
            <Button variant="default" onClick={() => setAct('off')}>
              Turn off
            </Button>
          ) : (
            <Button variant="default" onClick={() => setAct('set-up')}>
              Set up authenticator app
            </Button>
          )}
        </Group>
      )}
      {act === 'set-up' && <SetUp onCodes={onCodes} onCancel={close} />}
      {act === 'renew' && (
        <WithProof
          verb="Create new recovery codes"
          lead="The previous codes stop working at once."
          act={renew}
          onDone={({ recovery_codes }) => onCodes(recovery_codes)}
          onCancel={close}
        />
      )}
      {act === 'off' && (
        <WithProof
          verb="Turn off authenticator app"
          lead={
            state.passkeys > 0
              ? 'Your passkeys and recovery codes stay.'
              : 'The sign-in then asks for your password alone, and the recovery codes stop working.'
          }
          act={disableSecondFactor}
          onDone={() => {
            done('The authenticator app is off.')
            void reload()
          }}
          onCancel={close}
        />
      )}
    </Stack>
  )
}

interface WithProofProps<T> {
  verb: string
  lead: string
  act: (proof: Proof) => Promise<T>
  onDone: (result: T) => void
  onCancel: () => void
}

function WithProof<T>({ verb, lead, act, onDone, onCancel }: WithProofProps<T>) {
  const proof = useProof()
  return (
    <Form
      verb={verb}
      isDisabled={!proof.isReady}
      act={async () => act(await proof.proof())}
      onDone={onDone}
      onCancel={onCancel}
    >
      {(wrong) => (
        <>
          <Text size="sm">{lead}</Text>
          <ProofInput of={proof} confirms="the change" wrong={wrong} />
        </>
      )}
    </Form>
  )
}
