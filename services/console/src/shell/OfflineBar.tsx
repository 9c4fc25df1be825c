import { useEffect } from 'react'
import { probe, useSilentSince } from '../api/link'
import { Time, useNow } from '../ui/Time'
import classes from './shell.module.css'

const PROBE_MS = 2_000

/** "now" would be no time of something that has stopped. */
const Since = ({ at }: { at: number }) => (useNow() - at < 1_000 ? 'a moment ago' : <Time at={at} />)

/** Says since when the server has not answered. The page keeps its data and catches up by itself. */
export function OfflineBar() {
  const since = useSilentSince()
  const isSilent = since !== null
  useEffect(() => {
    if (!isSilent) return
    // Browsers that lost the server together must not all come back in the same moment.
    const timer = setInterval(() => void probe(), PROBE_MS * (1 + Math.random() / 2))
    return () => clearInterval(timer)
  }, [isSilent])
  return (
    <div role="status" aria-live="polite" className={classes.offlinePlace}>
      {since !== null && (
        <div className={classes.offline}>
          The server stopped answering <Since at={since} />. The page shows its last data, and tries again by
          itself.
        </div>
      )}
    </div>
  )
}
