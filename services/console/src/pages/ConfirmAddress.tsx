import { Button, Stack, Text } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { confirmAddress } from '../api/account'
import { linkToken } from '../api/linkToken'
import { meQuery } from '../api/session'
import { Card } from '../shell/Card'
import { Failure, Loading } from '../ui/State'

/** Confirms a new e-mail address with the link of a mail. The link works for the account that asked alone. */
export function ConfirmAddress() {
  const token = linkToken()
  const me = useQuery(meQuery)
  if (token === null) {
    return (
      <Card title="Open the link again" lead="This page needs the link from your mail.">
        <Stack gap="md" mt="lg">
          <Text size="sm">
            A reload removes the link from this page. Open it again in your mail: it works once, within a day.
          </Text>
          <Button component={Link} to="/me" variant="default">
            Go to your account
          </Button>
        </Stack>
      </Card>
    )
  }
  if (me.isPending) {
    return (
      <Card title="Confirm your address">
        <Loading height={80} />
      </Card>
    )
  }
  if (me.isError) {
    return (
      <Card title="Confirm your address">
        <Failure error={me.error} retry={() => void me.refetch()} />
      </Card>
    )
  }
  if (me.data === null) {
    return (
      <Card title="Sign in first" lead="The link works for the account that asked for it.">
        <Stack gap="md" mt="lg">
          <Text size="sm">Sign in with your old e-mail address. This page then confirms the new one.</Text>
          <Button component={Link} {...({ to: '/sign-in', search: { next: '/confirm-address' } } as object)}>
            Sign in
          </Button>
        </Stack>
      </Card>
    )
  }
  return <Confirm token={token} name={me.data.user.name} email={me.data.user.email ?? ''} />
}

function Confirm({ token, name, email }: { token: string; name: string; email: string }) {
  const client = useQueryClient()
  const confirming = useMutation({
    mutationFn: () => confirmAddress(token),
    onSuccess: () => client.invalidateQueries({ queryKey: meQuery.queryKey, exact: true }),
  })
  if (confirming.isSuccess) {
    return (
      <Card title="Your address was changed" lead={`From now on you sign in with ${email}.`}>
        <Button component={Link} to="/me" mt="lg">
          Go to your account
        </Button>
      </Card>
    )
  }
  return (
    <Card title="Confirm your address" lead={`You are signed in as ${name} (${email}).`}>
      <Stack gap="md" mt="lg">
        <Text size="sm">
          Your account gets the address to which the link was sent. You then sign in with that address.
        </Text>
        {confirming.isError && <Failure error={confirming.error} isOwnAccount />}
        <Button onClick={() => confirming.mutate()} loading={confirming.isPending}>
          Confirm new address
        </Button>
      </Stack>
    </Card>
  )
}
