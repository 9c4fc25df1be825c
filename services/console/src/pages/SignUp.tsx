import { Anchor, Button, Divider, Stack, Text, TextInput } from '@mantine/core'
import { queryOptions, useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { api, body, type Schemas } from '../api/client'
import { signInWithProvider } from '../api/identities'
import { useOnce } from '../api/once'
import { Problem } from '../api/problem'
import { meQuery, signedIn, signOut, waysQuery } from '../api/session'
import { legible } from '../lib/format'
import { roleText } from '../lib/roles'
import { Card } from '../shell/Card'
import { failed } from '../ui/notify'
import { PasswordInput } from '../ui/PasswordInput'
import { Facts } from '../ui/Stat'
import { Failure, Loaded } from '../ui/State'

// The token of an invitation or of the server's first start. It must not stay in the browser's history.
const token = location.hash.slice(1)
if (token) history.replaceState(null, '', location.pathname)

/** Makes an account: with the link that the server's first start logs, with an invitation, or with neither where the server allows it. */
export function SignUp() {
  const { data: me } = useQuery(meQuery)
  const { data: ways } = useQuery(waysQuery)
  if (me && token) return <Accept name={me.user.name} />
  if (!token && ways?.sign_up === 'invited') return <NeedsLink />
  return <Form provider={ways?.provider?.name} isMailed={ways?.password_reset !== false} />
}

function NeedsLink() {
  return (
    <Card title="You need a link">
      <Stack gap="md" mt="md">
        <Text size="sm">
          You can create an account with an invitation, or with the link that the server logged at its first
          start.
        </Text>
        <Button component={Link} to="/sign-in" variant="default">
          Sign in instead
        </Button>
      </Stack>
    </Card>
  )
}

const acceptInvitation = (invitation: Schemas['Acceptance'], key: string) =>
  body(api.POST('/invitations/accept', { params: { header: { 'Idempotency-Key': key } }, body: invitation }))

const offerQuery = queryOptions({
  queryKey: ['invitation'],
  queryFn: ({ signal }) => body(api.POST('/invitations/look', { body: { token }, signal })),
})

const Offer = ({
  offered: { organisation, name, role, invited_by },
}: {
  offered: Schemas['OfferedInvitation']
}) => (
  <>
    <Facts
      rows={[
        ['Organisation', legible(name)],
        [
          'Id',
          <span key="id" className="mono">
            {organisation}
          </span>,
        ],
        ['Invited by', invited_by ?? 'unknown'],
        ['Your role', roleText(role)],
      ]}
    />
    <Text size="sm">
      The audit log of the organisation then has your sign-ins, with address and browser. Accept only if you
      know who invites you: anybody can give an organisation this name.
    </Text>
  </>
)

/** Asks a signed-in person to confirm that they join the organisation of the invitation. */
function Accept({ name }: { name: string }) {
  const client = useQueryClient()
  const navigate = useNavigate()
  const accept = useOnce(acceptInvitation)
  const accepting = useMutation({
    mutationFn: () => accept({ token }),
    onSuccess: async () => {
      await client.invalidateQueries()
      await navigate({ to: '/', search: { all: true } })
    },
  })
  const offer = useQuery(offerQuery)
  return (
    <Card title="Join an organisation" lead={`You are signed in as ${name}.`}>
      <Stack gap="md" mt="lg">
        {offer.isLoadingError ? (
          <Failure error={offer.error} retry={() => void offer.refetch()} isOwnAccount />
        ) : (
          <Loaded query={offer} height={160}>
            {(offered) => <Offer offered={offered} />}
          </Loaded>
        )}
        {accepting.isError && <Failure error={accepting.error} isOwnAccount />}
        <Button onClick={() => accepting.mutate()} loading={accepting.isPending} disabled={!offer.data}>
          Accept the invitation
        </Button>
        <Button variant="default" onClick={() => void signOut(client).catch(failed)}>
          Use another account
        </Button>
      </Stack>
    </Card>
  )
}

const createAccount = (account: Schemas['SignUp'], key: string) =>
  body(api.POST('/sign-up', { params: { header: { 'Idempotency-Key': key } }, body: account }))

function Form({ provider, isMailed }: { provider: string | undefined; isMailed: boolean }) {
  const client = useQueryClient()
  const navigate = useNavigate()
  const signUp = useOnce(createAccount)
  const [said, setText] = useState({ email: '', password: '', name: '' })
  const [sentTo, setSentTo] = useState<string>()
  const signingUp = useMutation({
    mutationFn: () => signUp({ ...said, ...(token && { token }) }),
    onSuccess: (answer) => {
      // Without a user in the answer, the server has mailed or logged a link that confirms the address.
      if (!('user' in answer)) return setSentTo(answer.email)
      signedIn(client, answer)
      void navigate({ to: '/' })
    },
  })
  const leaving = useMutation({ mutationFn: () => signInWithProvider(token) })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    signingUp.mutate()
  }
  const fields = signingUp.error instanceof Problem ? signingUp.error.fields : {}
  const field = (name: keyof typeof said) => ({
    name,
    required: true,
    withAsterisk: false,
    value: said[name],
    onChange: (event: { currentTarget: HTMLInputElement }) => {
      const { value } = event.currentTarget
      setText((before) => ({ ...before, [name]: value }))
    },
    error: fields[name],
  })
  const hasFields = Object.keys(fields).length > 0
  if (sentTo) {
    return (
      <Card
        title={isMailed ? 'Open the link in your mail' : 'Ask your operator for the link'}
        lead={isMailed ? `It was sent to ${sentTo}.` : `The server's log has a link for ${sentTo}.`}
      >
        <Text size="sm">The link lasts a day and asks for the password that you chose.</Text>
      </Card>
    )
  }
  return (
    <Card title="Create your account" lead="You own what you create, and invite others later.">
      <Stack gap="md" mt="lg">
        {provider && (
          <>
            <Button
              variant="default"
              fullWidth
              onClick={() => leaving.mutate()}
              loading={leaving.isPending || leaving.isSuccess}
            >
              Continue with {provider}
            </Button>
            {leaving.isError && <Failure error={leaving.error} isOwnAccount />}
            <Divider label="or" />
          </>
        )}
        <form onSubmit={submit}>
          <Stack gap="md">
            <TextInput label="Your name" autoComplete="name" {...field('name')} />
            <TextInput label="E-mail address" type="email" autoComplete="username" {...field('email')} />
            <PasswordInput
              label="Password"
              description="At least 15 characters. A sentence is easy to remember."
              autoComplete="new-password"
              {...field('password')}
            />
            {signingUp.isError && !hasFields && <Failure error={signingUp.error} isOwnAccount />}
            <Button type="submit" loading={signingUp.isPending} fullWidth>
              Create account
            </Button>
          </Stack>
        </form>
        <Text size="sm" c="dimmed">
          Have an account?{' '}
          <Anchor component={Link} to="/sign-in" inherit>
            Sign in
          </Anchor>
        </Text>
      </Stack>
    </Card>
  )
}
