import { Button, Radio, Stack, Text, TextInput } from '@mantine/core'
import { IconPlus } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import { useOrganisation } from '../../api/brokers'
import type { Schemas } from '../../api/client'
import { useOnce } from '../../api/once'
import { deleteInvitation, type Invitation, invitationsQuery, invite } from '../../api/organisation'
import type { Role } from '../../api/session'
import { ROLES, roleText } from '../../lib/roles'
import { Secret } from '../../ui/Code'
import { Confirm } from '../../ui/Confirm'
import { Drawer } from '../../ui/Drawer'
import { Email } from '../../ui/Email'
import { Form } from '../../ui/Form'
import { done } from '../../ui/notify'
import { Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Empty, Loaded } from '../../ui/State'
import { Time } from '../../ui/Time'

/** Stands in the address for an invitation that is not made yet. */
const NEW = '+'

export function Invitations() {
  const { id, can } = useOrganisation()
  const client = useQueryClient()
  const query = useQuery(invitationsQuery(id))
  const { edit } = useSearch({ from: '/signed-in/org/$organisation' })
  const navigate = useNavigate({ from: '/org/$organisation' })
  const [made, setMade] = useState<Schemas['MadeInvitation'] | null>(null)
  const canWrite = can('organisation:write')
  const reload = () => client.invalidateQueries({ queryKey: ['org', id, 'invitations'] })
  const columns: Column<Invitation>[] = [
    {
      key: 'email',
      header: 'E-mail address',
      width: 'minmax(0, 2fr)',
      isWrapped: true,
      cell: ({ email }) => <Email address={email} />,
    },
    { key: 'role', header: 'Role', width: '88px', cell: ({ role }) => roleText(role) },
    {
      key: 'expires',
      header: 'Expires',
      width: '80px',
      isExtra: true,
      cell: ({ expires_at_ms }) => <Time at={expires_at_ms} />,
    },
    {
      key: 'delete',
      header: '',
      width: '96px',
      isNumber: true,
      cell: (row) =>
        canWrite && (
          <Confirm
            verb="Withdraw"
            title={`Withdraw the invitation of ${row.email}?`}
            loses="The link that was sent stops working. To invite this person again, a new link must be sent."
            act={() => deleteInvitation(id, row.id)}
            onDone={() => {
              done(`The invitation of ${row.email} was withdrawn.`)
              void reload()
            }}
          >
            {(open) => (
              <Button size="xs" variant="subtle" color="gray" onClick={open}>
                Withdraw
              </Button>
            )}
          </Confirm>
        ),
    },
  ]
  const setEdit = (edit: string | undefined) => {
    // A secret is not shown again after a step back.
    setMade(null)
    void navigate({ search: (before) => ({ ...before, edit }) })
  }
  const close = () => setEdit(undefined)
  const add = canWrite && (
    <Button leftSection={<IconPlus size={16} />} onClick={() => setEdit(NEW)}>
      Invite
    </Button>
  )
  return (
    <Panel
      isFlush
      title="Invitations"
      lead="Links that have not been used yet."
      actions={query.data?.items.length !== 0 && add}
    >
      <Loaded query={query}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title="No invitation is open" action={add}>
              {canWrite
                ? 'Invite a colleague: they get a link to create an account.'
                : 'An owner of the organisation invites people. The Members tab shows the owners.'}
            </Empty>
          ) : (
            <Rows label="Invitations" rows={items} columns={columns} idOf={(one) => one.id} />
          )
        }
      </Loaded>
      <Drawer
        // The answer may come when the form is closed, and no other shows the secret.
        opened={made !== null || (edit === NEW && canWrite)}
        onClose={close}
        title="Invite"
        // The link cannot be shown again.
        closeOnClickOutside={made === null}
        closeOnEscape={made === null}
      >
        {made ? (
          <Stack gap="md">
            <Text size="sm">
              Send this link to {made.email}. It works once, and ends <Time at={made.expires_at_ms} />.
            </Text>
            <Secret
              name={`Invitation of ${made.email}`}
              value={`${location.origin}/sign-up#${made.token}`}
              fileName="invitation.txt"
            />
            <Button onClick={close} style={{ alignSelf: 'flex-start' }}>
              I have stored it
            </Button>
          </Stack>
        ) : (
          <InviteForm
            onMade={(invitation) => {
              setMade(invitation)
              void reload()
            }}
          />
        )}
      </Drawer>
    </Panel>
  )
}

function InviteForm({ onMade }: { onMade: (made: Schemas['MadeInvitation']) => void }) {
  const { id } = useOrganisation()
  const [email, setEmail] = useState('')
  const [role, setRole] = useState<Role>('operator')
  const send = useOnce(invite)
  return (
    <Form verb="Invite" act={() => send({ organisation: id, invitation: { email, role } })} onDone={onMade}>
      {(wrong) => (
        <>
          <TextInput
            label="E-mail address"
            type="email"
            value={email}
            onChange={(event) => setEmail(event.currentTarget.value)}
            error={wrong.email}
            required
            withAsterisk={false}
            data-autofocus
          />
          <Radio.Group
            label="Role"
            value={role}
            onChange={(value) => setRole(value as Role)}
            error={wrong.role}
          >
            <Stack gap="xs" mt="xs">
              {ROLES.map((one) => (
                <Radio key={one.value} {...one} />
              ))}
            </Stack>
          </Radio.Group>
        </>
      )}
    </Form>
  )
}
