import { count } from '../lib/format'
import { useReceivedText } from '../ui/announce'
import type { Status } from './client'
import classes from './live.module.css'
import type { View } from './log'

const said = (status: Status) => {
  switch (status.kind) {
    case 'connecting':
      return 'Connecting'
    case 'connected':
      return `Connected as ${status.clientId}`
    case 'lost':
      return `${status.why} The page tries again by itself.`
    case 'refused':
      return status.why
  }
}

/** State of the page's own client. Screen readers get the number of received messages now and then, instead of each message. */
export function StatusLine({ status, view }: { status: Status; view?: View }) {
  useReceivedText(view?.received ?? 0)
  return (
    <span className={classes.status}>
      <span className={classes.dot} data-kind={status.kind} aria-hidden="true" />
      <span role="status">{said(status)}</span>
      {view && status.kind === 'connected' && (
        <span>
          {count(view.received)} received, {count(view.perSecond)}/s
          {view.skipped > 0 && `, ${count(view.skipped)} skipped in the list`}
        </span>
      )}
    </span>
  )
}
