import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { confirmSignUp } from '../api/account'
import { linkToken } from '../api/linkToken'
import { signedIn } from '../api/session'
import { LinkedPassword, NeedsLink } from './LinkedPassword'

const NEW_LINK = { to: '/sign-up', label: 'Sign up again' } as const

/** Confirms the e-mail address of a sign-up with the link of a mail, or of the operator, and makes the account. */
export function ConfirmSignUp() {
  const token = linkToken()
  return token === null ? <NeedsLink lasts="a day" newLink={NEW_LINK} /> : <Confirm token={token} />
}

function Confirm({ token }: { token: string }) {
  const client = useQueryClient()
  const navigate = useNavigate()
  const confirming = useMutation({
    mutationFn: (password: string) => confirmSignUp(token, password),
    onSuccess: (session) => {
      signedIn(client, session)
      void navigate({ to: '/' })
    },
  })
  return (
    <LinkedPassword
      title="Confirm your e-mail address"
      lead="Enter the password that you chose when you signed up. The server then creates the account."
      field={{ label: 'Password', autoComplete: 'current-password' }}
      submit="Create account"
      newLink={NEW_LINK}
      sending={confirming}
    />
  )
}
