import { useNavigate, useSearch } from '@tanstack/react-router'

/** What is edited is in the address: undefined is nothing, "+" is something new. */
export function useEdit() {
  const { edit } = useSearch({ from: '/signed-in/b/$broker/access' })
  const navigate = useNavigate({ from: '/b/$broker/access' })
  const set = (to: string | undefined) => void navigate({ search: (before) => ({ ...before, edit: to }) })
  return { edit: edit === undefined || edit === '+' ? undefined : edit, isNew: edit === '+', set }
}

export const NEW = '+'
