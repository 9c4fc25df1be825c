import { Anchor, Button, Stack, Text, TextInput } from '@mantine/core'
import { useMutation, useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { askPasswordReset } from '../api/account'
import { Problem } from '../api/problem'
import { waysQuery } from '../api/session'
import { Card } from '../shell/Card'
import { Code } from '../ui/Code'
import { Failure } from '../ui/State'

const Back = () => (
  <Anchor component={Link} to="/sign-in" size="sm">
    Back to sign in
  </Anchor>
)

/** Asks for a mail with a link for a new password. The times in the text are PASSWORD_RESET_MS and PASSWORD_RESET_EVERY of
 * services/control/src/limits.rs. */
export function ForgotPassword() {
  const { data: ways } = useQuery(waysQuery)
  const [email, setEmail] = useState('')
  const asking = useMutation({ mutationFn: () => askPasswordReset(email) })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    asking.mutate()
  }
  if (ways && !ways.password_reset) {
    return (
      <Card title="Ask your operator" lead="This server sends no mail.">
        <Stack gap="md" mt="lg">
          <Text size="sm">
            The operator creates a link for a new password with this command, and passes it on to you.
          </Text>
          <Code text="millrace accounts reset-link you@example.org" label="the command" />
          <Back />
        </Stack>
      </Card>
    )
  }
  if (asking.isSuccess) {
    return (
      <Card
        title="Open the link in your mail"
        lead={`If ${asking.data.email} has an account, a mail is on its way.`}
      >
        <Stack gap="md" mt="lg">
          <Text size="sm">
            The link works once, for an hour. No mail? Look into the spam folder. A second mail to the same
            address is sent after five minutes.
          </Text>
          <Back />
        </Stack>
      </Card>
    )
  }
  const fields = asking.error instanceof Problem ? asking.error.fields : {}
  return (
    <Card title="Forgot your password?" lead="The server mails you a link with which you choose a new one.">
      <form onSubmit={submit}>
        <Stack gap="md" mt="lg">
          <TextInput
            label="E-mail address"
            type="email"
            name="email"
            autoComplete="username"
            required
            withAsterisk={false}
            value={email}
            onChange={(event) => setEmail(event.currentTarget.value)}
            error={fields.email}
          />
          {asking.isError && !fields.email && <Failure error={asking.error} isOwnAccount />}
          <Button type="submit" loading={asking.isPending} fullWidth>
            Send link
          </Button>
          <Back />
        </Stack>
      </form>
    </Card>
  )
}
