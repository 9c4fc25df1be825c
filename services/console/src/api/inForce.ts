/** A change of a broker, and how long the servers take to read it. */
export interface Change<T> {
  value: T
  /** After this many milliseconds the change is in force everywhere; null: the server has not said. */
  inForceMs: number | null
}

/** Both times are of the server's clock: that of the browser may differ. `Date` has whole seconds, so this rounds up. */
export function inForceMs(headers: Headers): number | null {
  const at = Number(headers.get('millrace-in-force-at-ms') ?? Number.NaN)
  const said = Date.parse(headers.get('date') ?? '')
  if (Number.isNaN(at) || Number.isNaN(said)) return null
  return Math.max(0, at - said)
}

/** The answer to a change of who may connect, of rules or of limits. A refusal never comes here: the client throws it. */
export async function changed<T>(answer: Promise<{ data?: T; response: Response }>): Promise<Change<T>> {
  const { data, response } = await answer
  return { value: data as T, inForceMs: inForceMs(response.headers) }
}
