import { Anchor, Button, Group, Modal, Text, TextInput } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { isLost, isRefused, useOnce } from '../../api/once'
import {
  addPasskey,
  canUsePasskeys,
  type NewPasskey,
  newPasskey,
  type Passkey,
  passkeysQuery,
  removePasskey,
  renamePasskey,
} from '../../api/passkeys'
import { waysQuery } from '../../api/session'
import { browserName } from '../../lib/browsers'
import { Form } from '../../ui/Form'
import { done } from '../../ui/notify'
import { Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Empty, Loaded } from '../../ui/State'
import { Time } from '../../ui/Time'
import ui from '../../ui/ui.module.css'
import { ProofInput, useProof } from './ProofInput'
import { RecoveryCodes } from './RecoveryCodes'

const LEAD =
  'A passkey signs you in with your fingerprint, face, device PIN or security key. It works on this site alone, so no other site can steal it.'

/** Passkeys of the person: they sign in without a password, and are a second factor after it. */
export function Passkeys() {
  const client = useQueryClient()
  const query = useQuery(passkeysQuery)
  const { data: ways } = useQuery(waysQuery)
  const [isAdding, { open, close }] = useDisclosure(false)
  const [codes, setCodes] = useState<string[]>([])
  const origin = ways?.passkey_origin
  const isHere = canUsePasskeys(origin)
  // Without passkeys on this server, only an account that has some sees them.
  if (!origin && !query.data?.length) return null
  const reload = () => client.invalidateQueries({ queryKey: ['me'] })
  const add = isHere && !isAdding && codes.length === 0 && (
    <Button size="xs" variant="default" onClick={open}>
      Add passkey
    </Button>
  )
  return (
    <Panel isFlush title="Passkeys" lead={LEAD} actions={add}>
      {codes.length > 0 && (
        <Inset>
          <RecoveryCodes codes={codes} onStored={() => setCodes([])} />
        </Inset>
      )}
      {isAdding && (
        <Inset>
          <Add
            onAdded={(made) => {
              close()
              setCodes(made)
              void reload()
            }}
            onCancel={() => {
              close()
              // The answer may have been lost after the server added the passkey.
              void reload()
            }}
          />
        </Inset>
      )}
      <Loaded query={query} height={100}>
        {(rows) =>
          rows.length === 0 ? (
            <Empty title="No passkey yet">
              {isHere ? (
                'Add one to sign in without your password. It is also your second factor.'
              ) : (
                <Elsewhere origin={origin} />
              )}
            </Empty>
          ) : (
            <PasskeyRows rows={rows} reload={reload} />
          )
        }
      </Loaded>
    </Panel>
  )
}

const Inset = ({ children }: { children: ReactNode }) => <div className={ui.inset}>{children}</div>

function Elsewhere({ origin }: { origin: string | null | undefined }) {
  if (!origin || origin === location.origin) return 'This browser has no passkeys.'
  return (
    <>
      Browsers bind a passkey to the name of a site. Open{' '}
      <Anchor underline="always" href={`${origin}/me`}>
        {origin}
      </Anchor>{' '}
      to add one.
    </>
  )
}

interface AddProps {
  onAdded: (recoveryCodes: string[]) => void
  onCancel: () => void
}

function Add({ onAdded, onCancel }: AddProps) {
  const [name, setName] = useState(() => browserName(navigator.userAgent))
  const proof = useProof()
  const [unsent, setUnsent] = useState<Unsent | null>(null)
  const send = useOnce(addPasskey)
  const add = async () => {
    const passkey = unsent?.passkey ?? (await newPasskey(name, proof.typed))
    try {
      return await send(passkey)
    } catch (error) {
      const mayBeAdded = isLost(error) || (unsent?.mayBeAdded ?? false)
      setUnsent(isRefused(error) ? null : { passkey, mayBeAdded })
      throw error
    }
  }
  return (
    <Form
      verb={unsent ? 'Send again' : 'Add passkey'}
      isDisabled={!unsent && (name.trim() === '' || !proof.isReady)}
      act={add}
      onDone={({ recovery_codes }) => {
        done(
          recovery_codes.length > 0
            ? 'The passkey was added. Your other browsers were signed out.'
            : 'The passkey was added.',
        )
        onAdded(recovery_codes)
      }}
      onCancel={onCancel}
    >
      {(wrong) =>
        unsent ? (
          <SendAgain {...unsent} />
        ) : (
          <>
            <Name value={name} onChange={setName} error={wrong.name} />
            <ProofInput of={proof} confirms="the new passkey" wrong={wrong} />
          </>
        )
      }
    </Form>
  )
}

/** A passkey that the device has made and the server may not have stored. */
interface Unsent {
  passkey: NewPasskey
  /** An answer was lost, so the server may have added the passkey. */
  mayBeAdded: boolean
}

const SendAgain = ({ passkey: { name }, mayBeAdded }: Unsent) => (
  <Text size="sm">
    {mayBeAdded
      ? `Your device made the passkey ${name}, but the answer of the server did not arrive. Send the passkey again: the server adds it once, and its answer holds your recovery codes. If you cancel and the passkey is in the list below, make new recovery codes under Second factor.`
      : `Your device made the passkey ${name}, but the server has not added it; the reason is below. Solve that, then send the passkey again. If you cancel, delete the passkey from your device.`}
  </Text>
)

interface NameProps {
  value: string
  onChange: (name: string) => void
  error?: string
}

function Name({ value, onChange, error }: NameProps) {
  return (
    <TextInput
      label="Name of the passkey"
      description="So that you recognise it in this list"
      maxLength={100}
      autoComplete="off"
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      error={error}
      data-autofocus
    />
  )
}

interface RowsProps {
  rows: Passkey[]
  reload: () => Promise<void>
}

function PasskeyRows({ rows, reload }: RowsProps) {
  const columns: Column<Passkey>[] = [
    {
      key: 'name',
      header: 'Name',
      width: 'minmax(0, 1fr)',
      cell: ({ name }) => <span title={name}>{name}</span>,
    },
    {
      key: 'added',
      header: 'Added',
      width: '90px',
      isExtra: true,
      cell: (row) => <Time at={row.created_at_ms} />,
    },
    {
      key: 'used',
      header: 'Last used',
      width: '90px',
      cell: ({ last_used_at_ms }) => (last_used_at_ms ? <Time at={last_used_at_ms} /> : 'never'),
    },
    {
      key: 'acts',
      header: '',
      width: '164px',
      isNumber: true,
      cell: (row) => (
        <Group gap={0} justify="flex-end" wrap="nowrap">
          <Rename row={row} reload={reload} />
          <Remove row={row} isLast={rows.length === 1} reload={reload} />
        </Group>
      ),
    },
  ]
  return <Rows label="Passkeys" rows={rows} columns={columns} idOf={({ id }) => id} />
}

function Rename({ row, reload }: { row: Passkey; reload: () => Promise<void> }) {
  const [isOpen, { open, close }] = useDisclosure(false)
  const [name, setName] = useState(row.name)
  return (
    <>
      <Button size="xs" variant="subtle" color="gray" onClick={open} aria-label={`Rename ${row.name}`}>
        Rename
      </Button>
      <Modal opened={isOpen} onClose={close} title={`Rename ${row.name}`}>
        <Form
          verb="Rename passkey"
          isDisabled={name.trim() === '' || name === row.name}
          act={() => renamePasskey(row.id, name)}
          onDone={() => {
            close()
            done('The passkey was renamed.')
            void reload()
          }}
          onCancel={close}
        >
          {(wrong) => <Name value={name} onChange={setName} error={wrong.name} />}
        </Form>
      </Modal>
    </>
  )
}

interface RemoveProps {
  row: Passkey
  isLast: boolean
  reload: () => Promise<void>
}

function Remove({ row, isLast, reload }: RemoveProps) {
  const [isOpen, { open, close }] = useDisclosure(false)
  return (
    <>
      <Button size="xs" variant="subtle" color="gray" onClick={open} aria-label={`Remove ${row.name}`}>
        Remove
      </Button>
      <Modal opened={isOpen} onClose={close} title={`Remove ${row.name}?`}>
        <Question row={row} isLast={isLast} reload={reload} close={close} />
      </Modal>
    </>
  )
}

function Question({ row, isLast, reload, close }: RemoveProps & { close: () => void }) {
  const proof = useProof()
  return (
    <Form
      verb="Remove passkey"
      color="red"
      isDisabled={!proof.isReady}
      act={() => removePasskey(row.id, proof.typed)}
      onDone={() => {
        close()
        done('The passkey was removed. Your other browsers were signed out.')
        void reload()
      }}
      onCancel={close}
    >
      {(wrong) => (
        <>
          <Text size="sm">
            {row.name} no longer signs you in. Delete it from your device or password manager, too.
            {isLast &&
              !proof.hasApp &&
              ' It is your only second factor: the sign-in then asks for your password alone, and your recovery codes stop working.'}
          </Text>
          <ProofInput of={proof} confirms="the removal" wrong={wrong} isFirst />
        </>
      )}
    </Form>
  )
}
