import { useNavigate, useSearch } from '@tanstack/react-router'

/** The address names the edited item: undefined is none, "+" is a new one. */
export function useEdit() {
  const { edit } = useSearch({ from: '/signed-in/b/$broker/access' })
  const navigate = useNavigate({ from: '/b/$broker/access' })
  const set = (to: string | undefined) => void navigate({ search: (before) => ({ ...before, edit: to }) })
  return { edit: edit === undefined || edit === '+' ? undefined : edit, isNew: edit === '+', set }
}

export const NEW = '+'

/** Whether a batch of credentials is made is in the address, too. */
export function useBatch() {
  const { batch } = useSearch({ from: '/signed-in/b/$broker/access' })
  const navigate = useNavigate({ from: '/b/$broker/access' })
  const set = (to: string | undefined) => void navigate({ search: (before) => ({ ...before, batch: to }) })
  return { isOpen: batch !== undefined, open: () => set(NEW), close: () => set(undefined) }
}

/** The claim token that is shown is in the address: undefined is none, "+" is a new one. */
export function useClaimToken() {
  const { claim } = useSearch({ from: '/signed-in/b/$broker/access' })
  const navigate = useNavigate({ from: '/b/$broker/access' })
  const set = (to: string | undefined) => void navigate({ search: (before) => ({ ...before, claim: to }) })
  return { claim, set }
}
