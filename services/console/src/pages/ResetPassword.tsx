import { Alert, Anchor, Button, Stack, Text } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { resetPassword } from '../api/account'
import { linkToken } from '../api/linkToken'
import { Problem } from '../api/problem'
import { meQuery } from '../api/session'
import { Card } from '../shell/Card'
import { PasswordInput } from '../ui/PasswordInput'
import { Failure } from '../ui/State'

/** Chooses a new password with the link of a mail, or of the operator. */
export function ResetPassword() {
  const token = linkToken()
  return token === null ? <NeedsLink /> : <NewPassword token={token} />
}

function NeedsLink() {
  return (
    <Card title="Open the link again" lead="This page works with the link of a mail or of your operator.">
      <Stack gap="md" mt="lg">
        <Text size="sm">
          The link works once, for an hour, and not after a reload of this page: open it again from where it
          was sent to you.
        </Text>
        <Button component={Link} to="/forgot-password" variant="default">
          Ask for a new link
        </Button>
      </Stack>
    </Card>
  )
}

function NewPassword({ token }: { token: string }) {
  const client = useQueryClient()
  const [password, setPassword] = useState('')
  const setting = useMutation({
    mutationFn: () => resetPassword(token, password),
    // The server has ended all sessions of the account, so this browser may be signed out.
    onSuccess: () => client.removeQueries({ queryKey: meQuery.queryKey }),
  })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    setting.mutate()
  }
  if (setting.isSuccess) {
    return (
      <Card title="Your password was changed" lead="All browsers were signed out.">
        <Stack gap="md" mt="lg">
          <Text size="sm">A second factor stays on: the sign-in asks for its code as before.</Text>
          <Button component={Link} to="/sign-in">
            Sign in
          </Button>
        </Stack>
      </Card>
    )
  }
  const fields = setting.error instanceof Problem ? setting.error.fields : {}
  return (
    <Card title="Choose a new password" lead="It signs you out in all browsers.">
      <form onSubmit={submit}>
        <Stack gap="md" mt="lg">
          <PasswordInput
            label="New password"
            description="At least 15 characters. A sentence is easy to keep in mind."
            name="password"
            autoComplete="new-password"
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
          {setting.isError && !fields.password && !fields.token && (
            <Failure error={setting.error} isOwnAccount />
          )}
          <Button type="submit" loading={setting.isPending} fullWidth>
            Change password
          </Button>
          {setting.isError && (
            <Anchor component={Link} to="/forgot-password" size="sm">
              Ask for a new link
            </Anchor>
          )}
        </Stack>
      </form>
    </Card>
  )
}
