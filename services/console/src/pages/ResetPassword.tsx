import { Button, Stack, Text } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { resetPassword } from '../api/account'
import { linkToken } from '../api/linkToken'
import { meQuery } from '../api/session'
import { Card } from '../shell/Card'
import { LinkedPassword, NeedsLink } from './LinkedPassword'

const NEW_LINK = { to: '/forgot-password', label: 'Ask for a new link' } as const

/** Chooses a new password with the link of a mail, or of the operator. */
export function ResetPassword() {
  const token = linkToken()
  return token === null ? <NeedsLink lasts="an hour" newLink={NEW_LINK} /> : <NewPassword token={token} />
}

function NewPassword({ token }: { token: string }) {
  const client = useQueryClient()
  const setting = useMutation({
    mutationFn: (password: string) => resetPassword(token, password),
    // The server has ended all sessions of the account, so this browser may be signed out.
    onSuccess: () => client.removeQueries({ queryKey: meQuery.queryKey }),
  })
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
  return (
    <LinkedPassword
      title="Choose a new password"
      lead="It signs you out in all browsers."
      field={{
        label: 'New password',
        description: 'At least 15 characters. A sentence is easy to remember.',
        autoComplete: 'new-password',
      }}
      submit="Change password"
      newLink={NEW_LINK}
      sending={setting}
    />
  )
}
