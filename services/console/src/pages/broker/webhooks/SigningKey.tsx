import { Button, Select, Stack, Text } from '@mantine/core'
import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { useBroker } from '../../../api/brokers'
import type { Schemas } from '../../../api/client'
import { useOnce } from '../../../api/once'
import { rotateKey, statusQuery } from '../../../api/webhooks'
import { absolute } from '../../../lib/format'
import { keysText, overlapUntil } from '../../../lib/keys'
import { OVERLAPS } from '../../../lib/overlaps'
import { Secret } from '../../../ui/Code'
import { Drawer } from '../../../ui/Drawer'
import { Form } from '../../../ui/Form'
import { done } from '../../../ui/notify'
import { Panel } from '../../../ui/Page'
import { PasswordInput } from '../../../ui/PasswordInput'
import { Facts } from '../../../ui/Stat'
import { useNow } from '../../../ui/Time'

type Status = Schemas['WebhookStatus']
type MadeKey = Schemas['MadeKey']

/** The key that signs requests, and its replacement. */
export function SigningKey({ name, status }: { name: string; status: Status }) {
  const { path, can } = useBroker()
  const client = useQueryClient()
  const now = useNow()
  const [isOpen, setOpen] = useState(false)
  const [made, setMade] = useState<MadeKey | null>(null)
  const isSigned = status.key_number != null
  const verb = isSigned ? 'Rotate signing key' : 'Create signing key'
  const close = () => {
    setOpen(false)
    setMade(null)
  }
  const onDone = (keys: MadeKey) => {
    void client.invalidateQueries({ queryKey: statusQuery(path, name).queryKey })
    if (keys.signing_key) return setMade(keys)
    done(`Key ${keys.key_number} signs from now on.`)
    close()
  }
  const { signs, lastAttempt } = keysText(status, now)
  return (
    <Panel
      title="Signing key"
      lead="The receiver verifies with this key that requests come from this broker."
      actions={
        can('access:write') && (
          <Button variant="default" onClick={() => setOpen(true)}>
            {verb}
          </Button>
        )
      }
    >
      <Facts
        rows={[
          ['Requests are signed by', signs],
          ['The last attempt was signed by', lastAttempt],
        ]}
      />
      <Drawer
        opened={made !== null || isOpen}
        onClose={close}
        title={made ? `Key ${made.key_number} of ${name}` : verb}
        // The key cannot be shown again.
        closeOnClickOutside={made === null}
        closeOnEscape={made === null}
      >
        {made && <NewKey name={name} made={made} onClose={close} />}
        {!made && isOpen && <Rotate name={name} verb={verb} status={status} onDone={onDone} />}
      </Drawer>
    </Panel>
  )
}

function NewKey({ name, made, onClose }: { name: string; made: MadeKey; onClose: () => void }) {
  const now = useNow()
  const { signs } = keysText(made, now)
  return (
    <Stack gap="md">
      <Secret
        name={`Signing key ${made.key_number}`}
        value={made.signing_key ?? ''}
        fileName={`${name}-${made.key_number}.key`}
      />
      <Text size="sm">
        Requests are signed by {signs}.{' '}
        {made.previous_key_until_ms
          ? 'Give the new key to the receiver until then.'
          : 'Give the new key to the receiver now.'}
      </Text>
      <Button onClick={onClose} style={{ alignSelf: 'flex-start' }}>
        I have stored it
      </Button>
    </Stack>
  )
}

interface RotateProps {
  name: string
  verb: string
  status: Status
  onDone: (keys: MadeKey) => void
}

function Rotate({ name, verb, status, onDone }: RotateProps) {
  const { path } = useBroker()
  const now = useNow()
  const [overlap, setOverlap] = useState<string | null>('86400')
  const [own, setOwn] = useState('')
  const rotate = useOnce(rotateKey)
  const isSigned = status.key_number != null
  const until = overlapUntil(status, now)
  const value = until === null ? overlap : '0'
  const overlap_s = isSigned ? Number(value) : 0
  return (
    <Form verb={verb} act={() => rotate({ path, name, overlap_s, signing_key: own || null })} onDone={onDone}>
      {(wrong) => (
        <>
          {isSigned && (
            <Select
              label="The previous key also signs for"
              description={
                until === null
                  ? 'Until then each request has two signatures, and the receiver verifies either.'
                  : `Key ${status.previous_key_number} still signs until ${absolute(until)}, and a webhook has two keys at most. If you rotate before then, both keys stop signing at once.`
              }
              data={OVERLAPS}
              disabled={until !== null}
              value={value}
              onChange={setOverlap}
              error={wrong.overlap_s}
              allowDeselect={false}
            />
          )}
          <PasswordInput
            label="New key"
            description="Left empty, the server generates one and shows it once, in the next step."
            value={own}
            onChange={(event) => setOwn(event.currentTarget.value)}
            autoComplete="off"
            error={wrong.signing_key}
            maxLength={1024}
          />
        </>
      )}
    </Form>
  )
}
