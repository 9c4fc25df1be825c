import { useState } from 'react'
import type { Proof } from '../../api/account'
import { proofOf } from '../../api/passkeys'
import { PasswordInput } from '../../ui/PasswordInput'
import { FactorInput, useFactor } from './FactorInput'

/** The password, and the code of a second factor where the account has one: both confirm a change of the account. */
export function useProof() {
  const [password, setPassword] = useState('')
  const [code, setCode] = useState('')
  const { hasPasskey, hasApp, isReady: isFactorReady } = useFactor()
  return {
    password,
    setPassword,
    code,
    setCode,
    hasApp,
    /** A passkey is asked for when the form is sent. */
    isFactorReady: isFactorReady(code),
    isReady: password !== '' && isFactorReady(code),
    typed: { password, code, hasPasskey },
    /** The proof for a request. A passkey may ask the person now. */
    proof: (): Promise<Proof> => proofOf({ password, code, hasPasskey }),
    clear: () => {
      setPassword('')
      setCode('')
    },
  }
}

interface ProofInputProps {
  of: ReturnType<typeof useProof>
  /** Names the change: a page may ask for the password in several forms. */
  confirms: string
  /** The server's errors by field. */
  wrong: Record<string, string>
  description?: string | undefined
  /** The form is in a dialog, and this is its first field. */
  isFirst?: boolean
}

export const ProofInput = ({ of, confirms, wrong, description, isFirst }: ProofInputProps) => (
  <>
    <PasswordInput
      label="Your password"
      description={description}
      autoComplete="current-password"
      visibilityToggleButtonProps={{ 'aria-label': `Show the password that confirms ${confirms}` }}
      value={of.password}
      onChange={(event) => of.setPassword(event.currentTarget.value)}
      error={wrong.password}
      data-autofocus={isFirst || undefined}
    />
    <FactorInput value={of.code} onChange={of.setCode} wrong={wrong} />
  </>
)
