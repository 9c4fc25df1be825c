import { type DrawerProps, Drawer as MantineDrawer } from '@mantine/core'
import { type FormEvent, type PropsWithChildren, useCallback, useState } from 'react'
import { legible } from '../lib/format'
import { HoldContext, useHold } from './hold'

/**
 * A drawer that Escape and a click beside it close only while nothing is lost by that: no input in a form, no request, no question. Its
 * button closes it always.
 */
export function Drawer(props: PropsWithChildren<DrawerProps>) {
  const { opened, closeOnEscape = true, closeOnClickOutside = true, title, children, ...others } = props
  const [holds, setHolds] = useState(0)
  const [isTouched, setTouched] = useState(false)
  if (!opened && isTouched) setTouched(false)
  const hold = useCallback(() => {
    setHolds((before) => before + 1)
    // The drawer may handle the Escape that closes a question after the question has done so.
    return () => void setTimeout(() => setHolds((before) => before - 1))
  }, [])
  useHold(opened)
  const isFree = holds === 0 && !isTouched
  const touch = ({ target, currentTarget }: FormEvent) => {
    // Events of a question come here from outside of the drawer.
    if (target instanceof Element && currentTarget.contains(target) && target.closest('form'))
      setTouched(true)
  }
  return (
    <MantineDrawer
      {...others}
      opened={opened}
      title={typeof title === 'string' ? legible(title) : title}
      closeOnEscape={closeOnEscape && isFree}
      closeOnClickOutside={closeOnClickOutside && isFree}
    >
      <HoldContext.Provider value={hold}>
        <div style={{ display: 'contents' }} onInput={touch}>
          {children}
        </div>
      </HoldContext.Provider>
    </MantineDrawer>
  )
}
