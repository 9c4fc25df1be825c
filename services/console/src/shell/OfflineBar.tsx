import { useSilentSince } from '../api/link'
import { Time } from '../ui/Time'
import classes from './shell.module.css'

/** Says since when the server has not answered. The page keeps its data and catches up by itself. */
export function OfflineBar() {
  const since = useSilentSince()
  return (
    <div role="status" aria-live="polite" className={classes.offlinePlace}>
      {since !== null && (
        <div className={classes.offline}>
          The server stopped answering <Time at={since} />. The page shows what it last knew, and tries again
          by itself.
        </div>
      )}
    </div>
  )
}
