import { Anchor, Button, Divider, Group, Stack, Text, TextInput } from '@mantine/core'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { type FormEvent, type ReactNode, useState } from 'react'
import { asksForCode, codeToSend, isCodeMissing, signIn } from '../api/account'
import { localLinkProblem } from '../api/local'
import { canUsePasskeys, type PasskeyRequest, signInWithBoth, signInWithPasskey } from '../api/passkeys'
import { Problem } from '../api/problem'
import { type Session, signedIn, waysQuery } from '../api/session'
import { safeNext } from '../lib/next'
import { Card } from '../shell/Card'
import { PasswordInput } from '../ui/PasswordInput'
import { Failure } from '../ui/State'

const noAccount = (isLocal: boolean | undefined) =>
  isLocal
    ? 'On this machine you need no account: open the link that the server printed when it last started.'
    : 'No account? Open the invitation you were sent, or the link in the log of the server.'

export function SignIn() {
  const { next } = useSearch({ from: '/sign-in' })
  const client = useQueryClient()
  const navigate = useNavigate()
  return (
    <SignInSteps
      lead={next ? 'After you sign in, the page that you asked for opens.' : undefined}
      next={next}
      onSignedIn={(session) => {
        signedIn(client, session)
        void navigate({ href: safeNext(next), replace: true })
      }}
    />
  )
}

interface SignInStepsProps {
  lead: string | undefined
  email?: string
  /** The page that opens after a sign-in with the provider. */
  next?: string | undefined
  /** The sign-in stands over a page, which leaving the tab would lose. */
  isOverPage?: boolean
  onSignedIn: (session: Session) => void
}

export function SignInSteps(props: SignInStepsProps) {
  const { lead, email: known = '', next, isOverPage = false, onSignedIn: onSuccess } = props
  const [email, setEmail] = useState(known)
  const [password, setPassword] = useState('')
  const [asksCode, setAsksCode] = useState(false)
  const [challenge, setChallenge] = useState<PasskeyRequest | null>(null)
  const [hasPasskey, setHasPasskey] = useState(false)
  const { data: ways } = useQuery(waysQuery)
  const usesPasskeys = canUsePasskeys(ways?.passkey_origin)
  const signingIn = useMutation({
    mutationFn: (by?: Factor) => {
      if (!by) return signIn(email, password)
      if ('code' in by) return signIn(email, password, { code: codeToSend(by.code) })
      // The server accepts a challenge once. Without one, signInWithBoth requests the next.
      setChallenge(null)
      return signInWithBoth(email, password, challenge)
    },
    onSuccess,
    onError: (error) => {
      if (!asksForCode(error)) return
      setAsksCode(true)
      if (!(error instanceof Problem && error.passkey)) return
      setChallenge(error.passkey)
      setHasPasskey(true)
    },
  })
  const withPasskey = useMutation({ mutationFn: signInWithPasskey, onSuccess })
  if (asksCode) {
    const back = () => {
      setAsksCode(false)
      setPassword('')
      setHasPasskey(false)
      signingIn.reset()
    }
    return (
      <CodeStep
        error={isCodeMissing(signingIn.error) ? null : signingIn.error}
        isPending={signingIn.isPending}
        hasPasskey={hasPasskey && usesPasskeys}
        send={signingIn.mutate}
        back={back}
      />
    )
  }
  const submit = (event: FormEvent) => {
    event.preventDefault()
    signingIn.mutate(undefined)
  }
  const fields = signingIn.error instanceof Problem ? signingIn.error.fields : {}
  return (
    <Card title="Sign in" lead={lead}>
      <Stack gap="md" mt="lg">
        {localLinkProblem && <Failure error={localLinkProblem} isOwnAccount />}
        {ways?.provider && <Provider name={ways.provider.name} next={next} isOverPage={isOverPage} />}
        {usesPasskeys && (
          <Button
            variant="default"
            fullWidth
            loading={withPasskey.isPending}
            onClick={() => withPasskey.mutate()}
          >
            Sign in with a passkey
          </Button>
        )}
        {withPasskey.isError && <Failure error={withPasskey.error} isOwnAccount />}
        {(ways?.provider || usesPasskeys) && <Divider label="or" />}
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
            {signingIn.isError && <Failure error={signingIn.error} isOwnAccount />}
            <Button type="submit" loading={signingIn.isPending} fullWidth>
              Sign in
            </Button>
            {ways?.password_reset && (
              <Anchor component={Link} to="/forgot-password" size="sm">
                Forgot password?
              </Anchor>
            )}
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

interface ProviderProps {
  name: string
  next: string | undefined
  isOverPage: boolean
}

const Provider = ({ name, next, isOverPage }: ProviderProps) => (
  <>
    <Button
      component="a"
      href={`/api/v1/sign-in/oidc${next ? `?next=${encodeURIComponent(next)}` : ''}`}
      target={isOverPage ? '_blank' : undefined}
      variant="default"
      fullWidth
    >
      Sign in with {name}
    </Button>
    {isOverPage && (
      <Text size="sm" c="dimmed">
        {name} opens in a new tab. Come back to this one when you are signed in.
      </Text>
    )}
  </>
)

/** Room for spaces between the six digits, which `codeToSend` removes. */
const CODE_LENGTH_MAX = 12

/** The second factor of a sign-in. */
type Factor = { code: string } | { passkey: true }

interface CodeStepProps {
  error: Error | null
  isPending: boolean
  hasPasskey: boolean
  send: (by: Factor) => void
  back: () => void
}

/** The password was right, and the account has a second factor. */
function CodeStep({ error, isPending, hasPasskey, send, back }: CodeStepProps) {
  const [isPasskey, setPasskey] = useState(hasPasskey)
  const [code, setCode] = useState('')
  const [isRecovery, setRecovery] = useState(false)
  const submit = (event: FormEvent) => {
    event.preventDefault()
    send({ code })
  }
  const change = (to: boolean) => {
    setRecovery(to)
    setCode('')
  }
  if (isPasskey) {
    return (
      <Card title="Use your passkey" lead="Your password was right. One step is left.">
        <Stack gap="md" mt="lg">
          {error && <Failure error={error} isOwnAccount />}
          <Button fullWidth autoFocus loading={isPending} onClick={() => send({ passkey: true })}>
            Use passkey
          </Button>
          <OtherWays back={back}>
            <Way use={() => setPasskey(false)}>Use a code</Way>
          </OtherWays>
        </Stack>
      </Card>
    )
  }
  return (
    <Card
      title="Enter your code"
      lead={isRecovery ? 'Each recovery code works once.' : 'Your password was right. One step is left.'}
    >
      <form onSubmit={submit}>
        <Stack gap="md" mt="lg">
          {isRecovery ? (
            <TextInput
              key="recovery"
              label="Recovery code"
              description="One of the codes that you stored when you set up the second factor"
              name="recovery-code"
              autoComplete="off"
              autoCapitalize="none"
              spellCheck={false}
              classNames={{ input: 'mono' }}
              {...onlyField}
              value={code}
              onChange={(event) => setCode(event.currentTarget.value)}
            />
          ) : (
            <TextInput
              key="code"
              label="Code"
              description="The six digits that your authenticator app shows"
              name="code"
              inputMode="numeric"
              autoComplete="one-time-code"
              maxLength={CODE_LENGTH_MAX}
              classNames={{ input: 'mono' }}
              {...onlyField}
              value={code}
              onChange={(event) => setCode(event.currentTarget.value)}
            />
          )}
          {error && <Failure error={error} isOwnAccount />}
          <Button type="submit" loading={isPending} fullWidth>
            Sign in
          </Button>
          <OtherWays back={back}>
            <Way use={() => change(!isRecovery)}>
              {isRecovery ? 'Use the authenticator app' : 'Use a recovery code'}
            </Way>
            {hasPasskey && <Way use={() => setPasskey(true)}>Use your passkey</Way>}
          </OtherWays>
        </Stack>
      </form>
    </Card>
  )
}

const OtherWays = ({ back, children }: { back: () => void; children: ReactNode }) => (
  <Group justify="space-between">
    {children}
    <Way use={back}>Use another account</Way>
  </Group>
)

const Way = ({ use, children }: { use: () => void; children: ReactNode }) => (
  <Anchor component="button" type="button" size="sm" onClick={use}>
    {children}
  </Anchor>
)

const onlyField = { required: true, withAsterisk: false, autoFocus: true } as const
