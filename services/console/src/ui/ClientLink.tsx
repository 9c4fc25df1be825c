import { useRouter } from '@tanstack/react-router'
import type { MouseEvent } from 'react'
import { legible } from '../lib/format'
import classes from './ui.module.css'

/** A client id, on its way to the page of the client. Lists draw thousands of these, so it is a plain link. */
export function ClientLink({ broker, id }: { broker: string; id: string }) {
  const { history } = useRouter()
  const href = `/b/${encodeURIComponent(broker)}/clients/${encodeURIComponent(id)}`
  const open = (event: MouseEvent) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    event.preventDefault()
    history.push(href)
  }
  return (
    <a href={href} onClick={open} className={`mono ${classes.link}`} title={legible(id)}>
      {legible(id)}
    </a>
  )
}
