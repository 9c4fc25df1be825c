import { Modal } from '@mantine/core'
import { useQueryClient } from '@tanstack/react-query'
import { useEffect } from 'react'
import { type Session, sessionOfOtherTab, signedInAgain } from '../api/session'
import { SignInSteps } from '../pages/SignIn'
import { CardInDialog } from './Card'

/** Above drawers, their questions, and notices. */
const Z_INDEX = 1_000

/** The sign-in over a page whose session has ended. The page keeps what was typed, and hides it until the sign-in. */
export function SessionOver({ me }: { me: Session }) {
  const client = useQueryClient()
  useEffect(() => {
    const look = async () => {
      const session = await sessionOfOtherTab()
      if (session) signedInAgain(client, session)
    }
    addEventListener('focus', look)
    return () => removeEventListener('focus', look)
  }, [client])
  return (
    <Modal
      opened
      fullScreen
      padding={0}
      onClose={() => {}}
      withCloseButton={false}
      closeOnEscape={false}
      closeOnClickOutside={false}
      zIndex={Z_INDEX}
      transitionProps={{ duration: 0 }}
      attributes={{ content: { 'aria-label': 'Sign in' } }}
    >
      <CardInDialog value={true}>
        <SignInSteps
          lead="Your session has ended. Sign in to continue on this page. What you have typed is kept."
          email={me.user.email ?? ''}
          isOverPage
          onSignedIn={(session) => signedInAgain(client, session)}
        />
      </CardInDialog>
    </Modal>
  )
}
