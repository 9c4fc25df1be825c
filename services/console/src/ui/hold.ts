import { createContext, useContext, useEffect } from 'react'

/** Keeps the drawer around open until the returned function is called. */
type Hold = () => () => void

export const HoldContext = createContext<Hold>(() => () => {})

/** Keeps the drawer around open while `isHeld`: a request of it is under way, or a question stands above it. */
export function useHold(isHeld: boolean) {
  const hold = useContext(HoldContext)
  useEffect(() => {
    if (isHeld) return hold()
  }, [isHeld, hold])
}
