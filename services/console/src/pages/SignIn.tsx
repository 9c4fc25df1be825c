import { Anchor, Button, Divider, PasswordInput, Stack, Text, TextInput } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { api, body } from '../api/client'
import { linkProblem } from '../api/local'
import { Problem } from '../api/problem'
import { signedIn, waysQuery } from '../api/session'
import { safeNext } from '../lib/next'
import { Card } from '../shell/Card'
import { Failure } from '../ui/State'

const noAccount = (isLocal: boolean | undefined) =>
  isLocal
    ? 'On this machine you need no account: open the link that the server printed last when it started.'
    : 'No account? Open the invitation you were sent, or the link in the log of the server.'

export function SignIn() {
  const { next } = useSearch({ from: '/sign-in' })
  const client = useQueryClient()
  const navigate = useNavigate()
  const [email, setEmail] = useState('')
  const [password, setPassword] = useState('')
  const { data: ways } = useQuery(waysQuery)
  const signingIn = useMutation({
    mutationFn: () => body(api.POST('/sign-in', { body: { email, password } })),
    onSuccess: (session) => {
      signedIn(client, session)
      void navigate({ href: safeNext(next), replace: true })
    },
  })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    signingIn.mutate()
  }
  const fields = signingIn.error instanceof Problem ? signingIn.error.fields : {}
  return (
    <Card title="Sign in" lead={next ? 'Then you are back where you were.' : undefined}>
      <Stack gap="md" mt="lg">
        {linkProblem && <Failure error={linkProblem} />}
        {ways?.provider && (
          <>
            <Button component="a" href="/api/v1/sign-in/oidc" variant="default" fullWidth>
              Sign in with {ways.provider.name}
            </Button>
            <Divider label="or" />
          </>
        )}
        <form onSubmit={submit}>
          <Stack gap="md">
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
            {signingIn.isError && <Failure error={signingIn.error} />}
            <Button type="submit" loading={signingIn.isPending} fullWidth>
              Sign in
            </Button>
          </Stack>
        </form>
        <Text size="sm" c="dimmed">
          {ways?.sign_up === 'anybody' ? (
            <>
              No account?{' '}
              <Anchor component={Link} to="/sign-up" inherit>
                Sign up
              </Anchor>
            </>
          ) : (
            noAccount(ways?.local)
          )}
        </Text>
      </Stack>
    </Card>
  )
}
