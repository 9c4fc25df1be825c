import { Select, TextInput } from '@mantine/core'
import { useState } from 'react'
import { addBan, type NamedRows, putNamed } from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import { now } from '../../../lib/clock'
import { absolute } from '../../../lib/format'
import { ownNameFrom } from '../../../lib/names'
import { Form } from '../../../ui/Form'
import type { Column } from '../../../ui/Rows'
import { Time } from '../../../ui/Time'
import { NamedList } from './NamedList'

type Ban = NamedRows['bans']
type Kind = 'client_id' | 'user' | 'address'

const KINDS: Record<Kind, { label: string; placeholder: string }> = {
  client_id: { label: 'Client id', placeholder: 'pump-7' },
  user: { label: 'User', placeholder: 'pump-7' },
  address: { label: 'Addresses', placeholder: '192.0.2.0/24' },
}
const KIND_NAMES = Object.keys(KINDS) as Kind[]

const UNTIL = [
  { value: '3600', label: 'one hour' },
  { value: '86400', label: 'one day' },
  { value: '604800', label: 'one week' },
  { value: '', label: 'until someone removes it' },
]

/** A change of the reason does not move the end of the ban. */
const AS_IS = 'as-is'
const asIs = ({ until_ms }: Ban) => ({
  value: AS_IS,
  label: until_ms ? `as before, until ${absolute(until_ms)}` : 'as before, until it is removed',
})

const columns: Column<Ban>[] = [
  {
    key: 'whom',
    header: 'Banned',
    width: 'minmax(0, 2fr)',
    cell: (ban) =>
      KIND_NAMES.flatMap((kind) => (ban[kind] ? `${KINDS[kind].label.toLowerCase()} ${ban[kind]}` : [])).join(
        ', ',
      ),
  },
  {
    key: 'reason',
    header: 'Reason',
    width: 'minmax(0, 2fr)',
    isExtra: true,
    cell: ({ reason }) => reason ?? '–',
  },
  {
    key: 'until',
    header: 'Until',
    width: '96px',
    cell: ({ until_ms }) => (until_ms ? <Time at={until_ms} /> : 'never'),
  },
  {
    key: 'since',
    header: 'Since',
    width: '88px',
    isNumber: true,
    isExtra: true,
    cell: ({ created_at_ms }) => <Time at={created_at_ms} />,
  },
]

/** Clients, users and addresses that are kept out. */
export function Bans() {
  return (
    <NamedList
      kind="bans"
      title="Bans"
      lead="A banned client is disconnected within two seconds, and refused until the ban ends."
      noun="ban"
      empty={{
        title: 'Nobody is banned',
        text: 'Ban a client by its client id, its user or its address.',
      }}
      columns={columns}
      loses={() => 'Clients that it kept out may connect again.'}
      settingsOf={({ client_id, user, address, reason, until_ms }) => ({
        client_id,
        user,
        address,
        reason,
        until_ms,
      })}
      isShownAtOnce
      form={(row, onDone) => <BanForm row={row} onDone={onDone} />}
    />
  )
}

function BanForm({ row, onDone }: { row: Ban | undefined; onDone: () => void }) {
  const { path } = useBroker()
  const [before] = useState(row)
  const first = KIND_NAMES.find((one) => row?.[one])
  const [kind, setKind] = useState<Kind>(first ?? 'client_id')
  const [whom, setWhom] = useState((first && row?.[first]) ?? '')
  const [reason, setReason] = useState(row?.reason ?? '')
  const [seconds, setSeconds] = useState<string | null>(row ? AS_IS : '86400')
  const save = (overwrites: boolean) => {
    const until_ms =
      seconds === AS_IS ? (before?.until_ms ?? null) : seconds ? now() + Number(seconds) * 1000 : null
    const ban = { [kind]: whom, reason: reason || null, until_ms }
    if (!before) return addBan(path, ownNameFrom(`${kind}-${whom}`), ban, overwrites)
    return putNamed(path, 'bans', before.name, ban, before, overwrites)
  }
  return (
    <Form verb={row ? 'Save ban' : 'Add ban'} act={save} onDone={onDone}>
      {(wrong) => (
        <>
          <Select
            label="Ban by"
            data={KIND_NAMES.map((value) => ({ value, label: KINDS[value].label }))}
            value={kind}
            onChange={(value) => setKind(value as Kind)}
            allowDeselect={false}
          />
          <TextInput
            label={KINDS[kind].label}
            placeholder={KINDS[kind].placeholder}
            data-autofocus={!row || undefined}
            value={whom}
            onChange={(event) => setWhom(event.currentTarget.value)}
            error={wrong[kind]}
            required
            withAsterisk={false}
          />
          <TextInput
            label="Reason"
            description="For your colleagues"
            value={reason}
            onChange={(event) => setReason(event.currentTarget.value)}
            error={wrong.reason}
            maxLength={256}
          />
          <Select
            label="Duration"
            data={before ? [asIs(before), ...UNTIL] : UNTIL}
            value={seconds}
            onChange={setSeconds}
            allowDeselect={false}
          />
        </>
      )}
    </Form>
  )
}
