/** How far from a named time a message may be. */
const AROUND_MS = 5 * 60_000

/** Rows that were published around a time such as "2026-11-24T15:20", in the reader's time zone; without a time, all. */
export function around<T extends { at_ms: number }>(rows: readonly T[], time: string | undefined): T[] {
  const at = time === undefined ? Number.NaN : new Date(time).getTime()
  if (Number.isNaN(at)) return [...rows]
  return rows.filter(({ at_ms }) => Math.abs(at_ms - at) <= AROUND_MS)
}
