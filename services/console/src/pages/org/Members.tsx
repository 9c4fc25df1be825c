import { Button, Select } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useOrganisation } from '../../api/brokers'
import {
  changeMember,
  changeMemberBack,
  type Member,
  membersQuery,
  removeMember,
} from '../../api/organisation'
import { type Role, useMe } from '../../api/session'
import { ROLES, roleText } from '../../lib/roles'
import { Confirm } from '../../ui/Confirm'
import { failed } from '../../ui/notify'
import { Panel } from '../../ui/Page'
import { type Column, Rows } from '../../ui/Rows'
import { Loaded } from '../../ui/State'
import { Time } from '../../ui/Time'
import { undoable } from '../../ui/undo'

export function Members() {
  const { id, can } = useOrganisation()
  const { user } = useMe()
  const query = useQuery(membersQuery(id))
  const canWrite = can('organisation:write')
  const columns: Column<Member>[] = [
    {
      key: 'name',
      header: 'Name',
      width: 'minmax(0, 1fr)',
      cell: (member) => `${member.name}${member.id === user.id ? ' (you)' : ''}`,
    },
    {
      key: 'email',
      header: 'E-mail address',
      width: 'minmax(0, 1.4fr)',
      isExtra: true,
      cell: ({ email }) => email ?? '–',
    },
    {
      key: 'role',
      header: 'Role',
      width: '140px',
      cell: (member) => (canWrite ? <RoleSelect member={member} /> : roleText(member.role)),
    },
    {
      key: 'since',
      header: 'Since',
      width: '80px',
      isExtra: true,
      cell: ({ since_ms }) => <Time at={since_ms} />,
    },
    {
      key: 'remove',
      header: '',
      width: '92px',
      isNumber: true,
      cell: (member) => <Remove member={member} isMe={member.id === user.id} />,
    },
  ]
  return (
    <Panel
      isFlush
      title="Members"
      actions={
        canWrite && (
          <Button
            component={Link}
            to="/org/$organisation"
            params={{ organisation: id } as never}
            search={{ tab: 'invitations' } as never}
            variant="default"
          >
            Invite
          </Button>
        )
      }
    >
      <Loaded query={query}>
        {({ items }) => (
          <Rows label="Members" rows={items} columns={columns} idOf={(member) => member.id} rowPx={52} />
        )}
      </Loaded>
    </Panel>
  )
}

function RoleSelect({ member }: { member: Member }) {
  const { id } = useOrganisation()
  const client = useQueryClient()
  const changing = useMutation({
    mutationFn: (role: Role) => changeMember(id, member.id, role),
    onSuccess: (saved) =>
      undoable(`${saved.name} is ${roleText(saved.role).toLowerCase()} now.`, {
        act: () => changeMemberBack(id, saved, member.role),
        said: `${saved.name} is ${roleText(member.role).toLowerCase()} again.`,
        onDone: () => void client.invalidateQueries({ queryKey: ['org', id] }),
      }),
    onError: failed,
    onSettled: () => {
      // The member may be oneself, with other rights from now on.
      void client.invalidateQueries({ queryKey: ['me'] })
      return client.invalidateQueries({ queryKey: ['org', id] })
    },
  })
  return (
    <Select
      aria-label={`Role of ${member.name}`}
      size="xs"
      data={ROLES.map(({ value, label }) => ({ value, label }))}
      value={changing.isPending ? changing.variables : member.role}
      onChange={(role) => role && changing.mutate(role as Role)}
      allowDeselect={false}
    />
  )
}

function Remove({ member, isMe }: { member: Member; isMe: boolean }) {
  const { id, name, can } = useOrganisation()
  const client = useQueryClient()
  const navigate = useNavigate()
  if (!can('organisation:write') && !isMe) return null
  const verb = isMe ? 'Leave' : 'Remove'
  return (
    <Confirm
      verb={verb}
      title={isMe ? `Leave ${name}?` : `Remove ${member.name}?`}
      loses={
        isMe
          ? 'You lose access to its brokers until somebody invites you again.'
          : 'They lose access to its brokers.'
      }
      act={() => removeMember(id, member.id)}
      onDone={async () => {
        // The page of an organisation ends with the membership.
        if (isMe) await navigate({ to: '/', search: { all: true } })
        await client.invalidateQueries()
      }}
    >
      {(open) => (
        <Button size="xs" variant="subtle" color="gray" onClick={open}>
          {verb}
        </Button>
      )}
    </Confirm>
  )
}
