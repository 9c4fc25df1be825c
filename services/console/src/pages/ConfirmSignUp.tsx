import { Alert, Anchor, Button, Stack, Text } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { confirmSignUp } from '../api/account'
import { linkToken } from '../api/linkToken'
import { Problem } from '../api/problem'
import { signedIn } from '../api/session'
import { Card } from '../shell/Card'
import { PasswordInput } from '../ui/PasswordInput'
import { Failure } from '../ui/State'

/** Confirms the e-mail address of a sign-up with the link of a mail, or of the operator, and makes the account. */
export function ConfirmSignUp() {
  const token = linkToken()
  return token === null ? <NeedsLink /> : <Confirm token={token} />
}

function NeedsLink() {
  return (
    <Card title="Open the link again" lead="This page works with the link of a mail or of your operator.">
      <Stack gap="md" mt="lg">
        <Text size="sm">
          The link works once, for a day, and not after a reload of this page: open it again from where it was
          sent to you.
        </Text>
        <Button component={Link} to="/sign-up" variant="default">
          Sign up again
        </Button>
      </Stack>
    </Card>
  )
}

function Confirm({ token }: { token: string }) {
  const client = useQueryClient()
  const navigate = useNavigate()
  const [password, setPassword] = useState('')
  const confirming = useMutation({
    mutationFn: () => confirmSignUp(token, password),
    onSuccess: (session) => {
      signedIn(client, session)
      void navigate({ to: '/' })
    },
  })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    confirming.mutate()
  }
  const fields = confirming.error instanceof Problem ? confirming.error.fields : {}
  return (
    <Card
      title="Confirm your e-mail address"
      lead="Enter the password that you chose when you signed up. The server then creates the account."
    >
      <form onSubmit={submit}>
        <Stack gap="md" mt="lg">
          <PasswordInput
            label="Password"
            name="password"
            autoComplete="current-password"
            required
            withAsterisk={false}
            value={password}
            onChange={(event) => setPassword(event.currentTarget.value)}
            error={fields.password}
          />
          {fields.token && (
            <Alert color="red" variant="light" role="alert">
              {fields.token}
            </Alert>
          )}
          {confirming.isError && !fields.password && !fields.token && (
            <Failure error={confirming.error} isOwnAccount />
          )}
          <Button type="submit" loading={confirming.isPending} fullWidth>
            Create account
          </Button>
          {confirming.isError && (
            <Anchor component={Link} to="/sign-up" size="sm">
              Sign up again
            </Anchor>
          )}
        </Stack>
      </form>
    </Card>
  )
}
