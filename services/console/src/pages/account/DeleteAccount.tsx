import { Button, Modal, Text, TextInput } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { deletion } from '../../api/account'
import { forgetPerson, meQuery, useMe, waysQuery } from '../../api/session'
import { setSessionOver } from '../../api/sessionOver'
import { plural } from '../../lib/format'
import { Form } from '../../ui/Form'
import { done } from '../../ui/notify'
import { Panel } from '../../ui/Page'
import { ProofInput, useProof } from './ProofInput'

/** Deletes the account, after a question that names what is lost. */
export function DeleteAccount({ email }: { email: string }) {
  const [isOpen, { open, close }] = useDisclosure(false)
  return (
    <Panel
      title="Delete account"
      lead="You leave your organisations. Their brokers stay with their other members."
    >
      <Button color="red" variant="light" onClick={open}>
        Delete account
      </Button>
      <Modal opened={isOpen} onClose={close} title={`Delete the account of ${email}?`}>
        <Question email={email} close={close} />
      </Modal>
    </Panel>
  )
}

function Question({ email, close }: { email: string; close: () => void }) {
  const { organisations } = useMe()
  const proof = useProof()
  const [deleteAccount] = useState(deletion)
  const { data: ways } = useQuery(waysQuery)
  const client = useQueryClient()
  const navigate = useNavigate()
  const [typed, setTyped] = useState('')
  const provider = ways?.provider?.name
  const isReady = typed === email && (proof.password !== '' || provider !== undefined) && proof.isFactorReady
  return (
    <Form
      verb="Delete account"
      color="red"
      isDisabled={!isReady}
      act={async () => {
        const { password, ...factor } = await proof.proof()
        return deleteAccount({ password: password || null, ...factor })
      }}
      onDone={async () => {
        client.clear()
        setSessionOver(false)
        forgetPerson()
        client.setQueryData(meQuery.queryKey, null)
        done('Your account was deleted.')
        await navigate({ to: '/sign-in', search: {} })
      }}
      onCancel={close}
    >
      {(wrong) => (
        <>
          <Text size="sm">
            {organisations.length > 0 && (
              <>
                You leave {plural(organisations.length, 'organisation')}:{' '}
                <b>{organisations.map(({ name }) => name).join(', ')}</b>.{' '}
              </>
            )}
            All your browsers are signed out, your API tokens stop working, and your second factors and
            identities are removed. What you did stays in the audit logs. This cannot be undone.
          </Text>
          <TextInput
            label={`Type ${email} to confirm`}
            autoComplete="off"
            value={typed}
            onChange={(event) => setTyped(event.currentTarget.value)}
            data-autofocus
          />
          <ProofInput
            of={proof}
            confirms="the deletion"
            wrong={wrong}
            description={
              provider &&
              `Leave it empty if you have none: then you must have signed in with ${provider} in the last ten minutes.`
            }
          />
        </>
      )}
    </Form>
  )
}
