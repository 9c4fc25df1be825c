// The time of the server. A browser's clock may be wrong by a day, and then "connected in 23 h" is nonsense and a ban ends at once.
// A clock that is wrong by three seconds would still say "in 3 s" of what has just happened.

/** Bounds of the server's time minus the browser's, in milliseconds: each answer narrows them. */
let range = { from: Number.NEGATIVE_INFINITY, to: Number.POSITIVE_INFINITY }
let aheadMs = 0

/** A `Date` has whole seconds: the server cuts the rest. */
const DATE_MS = 1_000

/** Unix milliseconds by the server's clock. */
export const now = () => Date.now() + aheadMs

/** Learns the clock's difference from the `Date` of an answer that took `tookMs`. Answers come at different parts of a second, so
 * a few of them leave a range of about the time that an answer takes. */
export function learnClock(date: string | null, tookMs: number, own = Date.now()) {
  const said = Date.parse(date ?? '')
  if (Number.isNaN(said)) return
  // The server wrote the date at some moment of the request.
  const answered = { from: said - own, to: said + DATE_MS - own + tookMs }
  const both = { from: Math.max(range.from, answered.from), to: Math.min(range.to, answered.to) }
  // One of the clocks was set, or drifts: what was known no longer holds.
  range = both.from <= both.to ? both : answered
  aheadMs = range.from <= 0 && range.to >= 0 ? 0 : Math.round((range.from + range.to) / 2)
}
