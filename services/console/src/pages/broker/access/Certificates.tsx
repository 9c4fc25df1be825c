import { Select, Switch, Textarea } from '@mantine/core'
import { useState } from 'react'
import { type NamedRows, putNamed } from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import { Form } from '../../../ui/Form'
import { ConnectedClients } from '../../../ui/Losses'
import type { Column } from '../../../ui/Rows'
import { Time } from '../../../ui/Time'
import { GroupSelect } from './GroupSelect'
import { NamedList } from './NamedList'
import { NameInput } from './NameInput'
import { SwitchedOff } from './SwitchedOff'

type Ca = NamedRows['client-cas']

const USERS = [
  { value: 'common_name', label: 'Common name' },
  { value: 'san_dns', label: 'Subject alternative name, DNS' },
  { value: 'san_uri', label: 'Subject alternative name, URI' },
  { value: 'san_email', label: 'Subject alternative name, e-mail' },
]

const columns: Column<Ca>[] = [
  { key: 'name', header: 'Name', width: 'minmax(0, 1fr)', cell: ({ name }) => name },
  {
    key: 'user',
    header: 'User is',
    width: 'minmax(0, 1fr)',
    cell: ({ user }) => USERS.find(({ value }) => value === (user ?? 'common_name'))?.label,
  },
  {
    key: 'group',
    header: 'Group',
    width: 'minmax(0, 1fr)',
    isExtra: true,
    cell: ({ group }) => group ?? '–',
  },
  {
    key: 'enabled',
    header: 'Enabled',
    width: '72px',
    cell: ({ enabled }) => (enabled === false ? 'no' : 'yes'),
  },
  {
    key: 'created',
    header: 'Added',
    width: '88px',
    isNumber: true,
    isExtra: true,
    cell: ({ created_at_ms }) => <Time at={created_at_ms} />,
  },
]

/** Authorities whose client certificates are believed. */
export function Certificates() {
  return (
    <NamedList
      kind="client-cas"
      title="Client CAs"
      lead="A device with a certificate of one of these authorities may connect. Switch certificates on under Authentication."
      notice={
        <SwitchedOff what="certificates" isOff={({ certificates = 'off' }) => certificates === 'off'} />
      }
      noun="client CA"
      empty={{
        title: 'No client CA yet',
        text: 'Add the certificate of your authority, and devices connect with their own certificates instead of passwords.',
      }}
      columns={columns}
      loses={({ name }) => (
        <>
          <ConnectedClients isOne={({ method }) => method === `certificate:${name}`} />, and no device can
          reconnect with one of its certificates.
        </>
      )}
      settingsOf={({ enabled, group, pem, revoked, user }) => ({ enabled, group, pem, revoked, user })}
      form={(row, onDone) => <CaForm row={row} onDone={onDone} />}
    />
  )
}

function CaForm({ row, onDone }: { row: Ca | undefined; onDone: () => void }) {
  const { path } = useBroker()
  const [before] = useState(row)
  const [name, setName] = useState(row?.name ?? '')
  const [pem, setPem] = useState(row?.pem ?? '')
  const [revoked, setRevoked] = useState(row?.revoked ?? '')
  const [user, setUser] = useState<Ca['user']>(row?.user ?? 'common_name')
  const [group, setGroup] = useState(row?.group ?? null)
  const [enabled, setEnabled] = useState(row?.enabled ?? true)
  const settings = { pem, revoked: revoked || null, user, group, enabled }
  return (
    <Form
      verb="Save client CA"
      act={(overwrites) => putNamed(path, 'client-cas', name, settings, before, overwrites)}
      onDone={onDone}
    >
      {(wrong) => (
        <>
          {!row && <NameInput value={name} onChange={setName} error={wrong.name} placeholder="plant-ca" />}
          <Textarea
            label="Certificate"
            description="PEM, one certificate or a chain"
            autosize
            minRows={5}
            maxRows={12}
            classNames={{ input: 'mono' }}
            placeholder="-----BEGIN CERTIFICATE-----"
            value={pem}
            onChange={(event) => setPem(event.currentTarget.value)}
            error={wrong.pem}
            required
            withAsterisk={false}
          />
          <Textarea
            label="Revocation list"
            description="PEM of a CRL; empty: none"
            autosize
            minRows={2}
            maxRows={8}
            classNames={{ input: 'mono' }}
            value={revoked}
            onChange={(event) => setRevoked(event.currentTarget.value)}
            error={wrong.revoked}
          />
          <Select
            label="User name is"
            data={USERS}
            value={user}
            onChange={(value) => setUser(value as Ca['user'])}
            allowDeselect={false}
          />
          <GroupSelect
            description="Its rules apply to clients with these certificates, unless a credential with the same user name has another group."
            value={group}
            onChange={setGroup}
            error={wrong.group}
          />
          <Switch
            label="Enabled"
            checked={enabled}
            onChange={(event) => setEnabled(event.currentTarget.checked)}
          />
        </>
      )}
    </Form>
  )
}
