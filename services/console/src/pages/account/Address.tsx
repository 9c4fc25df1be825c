import { Text, TextInput } from '@mantine/core'
import { useState } from 'react'
import { askNewAddress } from '../../api/account'
import { Form } from '../../ui/Form'
import { Panel } from '../../ui/Page'
import { ProofInput, useProof } from './ProofInput'

/** Asks for another e-mail address. It changes when the link to that address is opened: a mail has it, or the server's log. */
export function Address({ isMailed }: { isMailed: boolean }) {
  const [email, setEmail] = useState('')
  const proof = useProof()
  const [sentTo, setSentTo] = useState('')
  return (
    <Panel
      title="E-mail address"
      lead={
        isMailed
          ? 'A mail with a link goes to the new address, and a notice to the old one. Nothing changes until you open the link.'
          : 'This server sends no mail: its operator gives you a link. Nothing changes until you open the link.'
      }
    >
      <Form
        verb={isMailed ? 'Send link' : 'Ask for the link'}
        isDisabled={email === '' || !proof.isReady}
        act={async () => askNewAddress({ email, ...(await proof.proof()) })}
        onDone={() => {
          setSentTo(email)
          setEmail('')
          proof.clear()
        }}
      >
        {(wrong) => (
          <>
            <TextInput
              label="New e-mail address"
              type="email"
              autoComplete="email"
              value={email}
              onChange={(event) => setEmail(event.currentTarget.value)}
              error={wrong.email}
            />
            <ProofInput of={proof} confirms="the new address" wrong={wrong} />
          </>
        )}
      </Form>
      <div role="status">
        {sentTo && (
          <Text size="sm" mt="md">
            {isMailed
              ? `Open the link that was sent to ${sentTo}`
              : 'Open the link that the operator gives you'}
            , in this browser. It works for a day.
          </Text>
        )}
      </div>
    </Panel>
  )
}
