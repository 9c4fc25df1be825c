import { Button, Group, Modal, Stack, Text } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useState } from 'react'
import {
  asksForProof,
  confirmIdentity,
  connectIdentity,
  type Identity,
  identitiesQuery,
  pendingIdentityQuery,
  removeIdentity,
} from '../api/identities'
import { waysQuery } from '../api/session'
import { Confirm } from '../ui/Confirm'
import { Form } from '../ui/Form'
import { done } from '../ui/notify'
import { Panel } from '../ui/Page'
import { type Column, Rows } from '../ui/Rows'
import { Facts } from '../ui/Stat'
import { Empty, Failure, Loaded } from '../ui/State'
import { Time } from '../ui/Time'
import { ProofInput, useProof } from './account/ProofInput'

const accountText = ({ email, subject }: Identity) => email ?? subject

/** Accounts of the provider with which the person signs in. Hidden where no provider is set up and none was. */
export function Identities() {
  const { identity } = useSearch({ from: '/signed-in/me' })
  const { data: ways } = useQuery(waysQuery)
  const query = useQuery(identitiesQuery)
  const provider = ways?.provider?.name
  const isPending = identity === 'pending'
  if (!provider && !isPending && !query.data?.length) return null
  return (
    <>
      {isPending && <PendingIdentity provider={provider ?? 'the provider'} />}
      <Panel
        isFlush
        title="Identities"
        lead={`Accounts of ${provider ?? 'a provider'} with which you sign in.`}
        actions={provider && <ConnectButton provider={provider} />}
      >
        <Loaded query={query} height={100}>
          {(rows) => <IdentityRows rows={rows} provider={provider} />}
        </Loaded>
      </Panel>
    </>
  )
}

function ConnectButton({ provider }: { provider: string }) {
  const [isAsking, { open, close }] = useDisclosure(false)
  const connecting = useMutation({
    mutationFn: () => connectIdentity(),
    onError: (error) => {
      if (asksForProof(error)) open()
    },
  })
  return (
    <Stack gap="xs" align="flex-end">
      <Button
        size="xs"
        variant="default"
        onClick={() => connecting.mutate()}
        // The browser leaves this page once the server has answered.
        loading={connecting.isPending || connecting.isSuccess}
      >
        Connect {provider}
      </Button>
      {connecting.isError && !asksForProof(connecting.error) && (
        <Failure error={connecting.error} isOwnAccount />
      )}
      <Modal opened={isAsking} onClose={close} title="Confirm that it is you">
        <Proof provider={provider} close={close} />
      </Modal>
    </Stack>
  )
}

/** Asks for the password when the sign-in is older than ten minutes, because somebody else may sit at this browser. */
function Proof({ provider, close }: { provider: string; close: () => void }) {
  const proof = useProof()
  const [isLeaving, setLeaving] = useState(false)
  return (
    <Form
      verb={`Continue to ${provider}`}
      isDisabled={!proof.isReady || isLeaving}
      act={async () => connectIdentity(await proof.proof())}
      onDone={() => setLeaving(true)}
      onCancel={close}
    >
      {(wrong) => (
        <>
          <Text size="sm">
            You signed in more than ten minutes ago. Enter your password: anyone who controls the connected
            account will be able to sign in as you.
          </Text>
          <ProofInput of={proof} confirms="the connection" wrong={wrong} isFirst />
        </>
      )}
    </Form>
  )
}

function IdentityRows({ rows, provider }: { rows: Identity[]; provider: string | undefined }) {
  if (rows.length === 0) {
    return (
      <Empty title="No identity yet">
        {`Connect your account of ${provider ?? 'the provider'} to sign in with it.`}
      </Empty>
    )
  }
  const columns: Column<Identity>[] = [
    {
      key: 'account',
      header: 'Account',
      width: 'minmax(0, 1fr)',
      cell: (row) => <span title={row.subject}>{accountText(row)}</span>,
    },
    {
      key: 'issuer',
      header: 'Provider',
      width: 'minmax(0, 1fr)',
      isExtra: true,
      cell: ({ issuer }) => <span title={issuer}>{issuer}</span>,
    },
    {
      key: 'connected',
      header: 'Connected',
      width: '90px',
      cell: ({ connected_at_ms }) => (connected_at_ms ? <Time at={connected_at_ms} /> : '–'),
    },
    {
      key: 'remove',
      header: '',
      width: '88px',
      isNumber: true,
      cell: (row) => <RemoveButton row={row} />,
    },
  ]
  return <Rows label="Identities" rows={rows} columns={columns} idOf={({ id }) => id} />
}

function RemoveButton({ row }: { row: Identity }) {
  const client = useQueryClient()
  const account = accountText(row)
  return (
    <Confirm
      verb="Remove identity"
      title={`Remove ${account}?`}
      loses={
        <>
          You can no longer sign in here with {account} of {row.issuer}. You then need your password, or
          another identity. The account at the provider stays, and so do your organisations and the browsers
          in which you are signed in.
        </>
      }
      act={() => removeIdentity(row.id)}
      onDone={() => {
        done('The identity was removed.')
        void client.invalidateQueries({ queryKey: identitiesQuery.queryKey })
      }}
    >
      {(open) => (
        <Button size="xs" variant="subtle" color="gray" onClick={open} aria-label={`Remove ${account}`}>
          Remove
        </Button>
      )}
    </Confirm>
  )
}

/** The browser is back from the provider. It may be signed in there as somebody else, so the person decides. */
function PendingIdentity({ provider }: { provider: string }) {
  const query = useQuery(pendingIdentityQuery)
  const navigate = useNavigate()
  const close = () => void navigate({ to: '/me', replace: true })
  return (
    <Panel title={`Connect ${provider}?`}>
      <Loaded query={query} height={100}>
        {(pending) =>
          pending ? (
            <ConfirmPending pending={pending} provider={provider} close={close} />
          ) : (
            <Empty
              title="No account waits for your confirmation"
              action={
                <Button variant="default" size="xs" onClick={close}>
                  Close
                </Button>
              }
            >
              It was confirmed, or ten minutes have passed. To connect an account, begin again below.
            </Empty>
          )
        }
      </Loaded>
    </Panel>
  )
}

interface ConfirmPendingProps {
  pending: Identity
  provider: string
  close: () => void
}

function ConfirmPending({ pending, provider, close }: ConfirmPendingProps) {
  const client = useQueryClient()
  const confirming = useMutation({
    mutationFn: confirmIdentity,
    onSuccess: () => {
      done(`You sign in with ${accountText(pending)} from now on.`)
      void client.invalidateQueries({ queryKey: identitiesQuery.queryKey, exact: true })
      close()
    },
  })
  return (
    <Stack gap="md">
      <Facts
        rows={[
          ['Provider', `${provider} (${pending.issuer})`],
          ['Account', accountText(pending)],
          ['Its id at the provider', pending.subject],
        ]}
      />
      <Text size="sm">
        Everybody who controls this account can then sign in as you. Connect it only if it is yours.
      </Text>
      {confirming.isError && <Failure error={confirming.error} />}
      <Group gap="xs">
        <Button onClick={() => confirming.mutate()} loading={confirming.isPending}>
          Connect this account
        </Button>
        <Button variant="default" onClick={close}>
          Cancel
        </Button>
      </Group>
    </Stack>
  )
}
