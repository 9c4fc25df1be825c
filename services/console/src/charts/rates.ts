// From counters to rates.

export interface Sample {
  at_ms: number
}

/** Servers report every two seconds, so a shorter window would show every other second as nothing. */
const WINDOW_MS = 4_000
/** Two samples closer than this may have the same report of a counter. */
const REPORT_MS = 2_000
/** Two samples this far apart have a gap between them. */
export const GAP_MS = 10_000

/** Growth of a counter a second, for each sample. Null where it is unknown: at the start, after a gap, after a reset. */
export function rates<T extends Sample>(
  samples: readonly T[],
  counter: (sample: T) => number,
): (number | null)[] {
  let from = 0
  return samples.map((sample, at) => {
    const before = samples[at - 1]
    if (!before || sample.at_ms - before.at_ms > GAP_MS || counter(sample) < counter(before)) {
      from = at
      return null
    }
    while (from < at - 1) {
      const next = samples[from + 1]
      if (!next || sample.at_ms - next.at_ms < WINDOW_MS) break
      from += 1
    }
    const first = samples[from]
    if (!first || sample.at_ms - first.at_ms < REPORT_MS) return null
    return ((counter(sample) - counter(first)) * 1000) / (sample.at_ms - first.at_ms)
  })
}

/** Puts nothing into gaps, so that a chart does not draw a line over them. */
export function withGaps<T extends Sample>(samples: readonly T[]): (T | null)[] {
  return samples.flatMap((sample, at) => {
    const before = samples[at - 1]
    return before && sample.at_ms - before.at_ms > GAP_MS ? [null, sample] : [sample]
  })
}
