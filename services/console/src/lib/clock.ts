// The time of the server. A browser's clock may be wrong by a day, and then "connected in 23 h" is nonsense and a ban ends at once.

/** Smaller differences come from the request's way, and from answers whose date has whole seconds. */
const TRUSTED_MS = 5_000

const STEADY_MS = 2_000

let aheadMs = 0

/** Unix milliseconds by the server's clock. */
export const now = () => Date.now() + aheadMs

/** Takes the clock's difference from the `Date` of an answer that took `tookMs`. */
export function hearClock(date: string | null, tookMs: number, own = Date.now()) {
  const said = Date.parse(date ?? '')
  if (Number.isNaN(said)) return
  // The server cut the rest of the second, and wrote the date before the answer's way back.
  const ahead = said + 500 - (own - tookMs / 2)
  if (Math.abs(ahead) < TRUSTED_MS + tookMs) aheadMs = 0
  // Times on the page would jump to and fro by the part of a second that no answer says.
  else if (Math.abs(ahead - aheadMs) > STEADY_MS + tookMs) aheadMs = Math.round(ahead)
}
