import { Button, Text, TextInput } from '@mantine/core'
import { useState } from 'react'
import { absolute } from '../lib/format'
import { Secret } from '../ui/Code'
import { Confirm } from '../ui/Confirm'
import { Form } from '../ui/Form'
import { done } from '../ui/notify'
import { Page, Panel } from '../ui/Page'
import { makeResetLink, type ResetLink, removeSecondFactor } from './queries'

/** Operators' help for a person who cannot sign in. */
export function Accounts() {
  return (
    <Page
      title="Accounts"
      lead="Help for a person who cannot sign in. First make sure that the request comes from this person."
    >
      <NewPassword />
      <LostSecondFactor />
    </Page>
  )
}

function NewPassword() {
  const [email, setEmail] = useState('')
  const [made, setMade] = useState<ResetLink>()
  return (
    <Panel
      title="Forgotten password"
      lead="The link sets a new password. It works once, within an hour, and signs out all browsers of the account. A second factor stays on."
    >
      <Form
        verb="Create reset link"
        isDisabled={email.trim() === ''}
        act={() => makeResetLink(email.trim())}
        onDone={(link) => {
          setMade(link)
          // The operator may have typed the next address in the meantime.
          setEmail((typed) => (typed.trim() === link.email ? '' : typed))
        }}
      >
        {(wrong) => <Address value={email} onChange={setEmail} error={wrong.email} />}
      </Form>
      <div role="status">
        {made && (
          <>
            <Text size="sm" my="md">
              Pass this link on to {made.email}. It works until {absolute(made.expires_at_ms)}.
            </Text>
            <Secret name="Reset link" value={made.url} fileName="reset-link.txt" />
          </>
        )}
      </div>
    </Panel>
  )
}

function LostSecondFactor() {
  const [email, setEmail] = useState('')
  const wanted = email.trim()
  return (
    <Panel
      title="Lost second factor"
      lead="For a person who has lost the authenticator app and all recovery codes."
    >
      <Address value={email} onChange={setEmail} />
      <Confirm
        verb="Remove second factor"
        title={`Remove the second factor of ${wanted}?`}
        name={wanted}
        loses={
          <>
            <Text size="sm">
              The sign-in of this account then asks for the password alone. Its recovery codes stop working,
              and all its browsers are signed out. API tokens stay valid.
            </Text>
            <Text size="sm" mt="xs">
              The audit logs of the person's organisations get an entry. If this server sends mail, the person
              is notified. Only the person can set up a new second factor.
            </Text>
          </>
        }
        act={() => removeSecondFactor(wanted)}
        onDone={() => {
          done(`The second factor of ${wanted} is removed.`)
          setEmail('')
        }}
      >
        {(open) => (
          <Button color="red" variant="light" mt="md" onClick={open} disabled={wanted === ''}>
            Remove second factor
          </Button>
        )}
      </Confirm>
    </Panel>
  )
}

interface AddressProps {
  value: string
  onChange: (email: string) => void
  error?: string
}

function Address({ value, onChange, error }: AddressProps) {
  return (
    <TextInput
      label="E-mail address of the account"
      type="email"
      autoComplete="off"
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
      error={error}
      maw={420}
    />
  )
}
