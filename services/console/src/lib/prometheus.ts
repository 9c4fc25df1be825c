// Reads metrics in Prometheus text.

export interface Sample {
  name: string
  labels: Record<string, string>
  value: number
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g

function numberOf(text: string): number {
  if (text === '+Inf') return Number.POSITIVE_INFINITY
  return text === '-Inf' ? Number.NEGATIVE_INFINITY : Number(text)
}

const unescaped = (text: string) => text.replace(/\\(.)/g, (_, sign) => (sign === 'n' ? '\n' : sign))

/** The samples of a page. Comments and invalid lines are left out. */
export function samplesOf(text: string): Sample[] {
  return text.split('\n').flatMap((line) => {
    const found = line.startsWith('#') ? null : LINE.exec(line)
    if (!found) return []
    const [, name = '', labels = '', value = ''] = found
    const pairs = [...labels.matchAll(LABEL)].map(([, key = '', said = '']) => [key, unescaped(said)])
    return [{ name, labels: Object.fromEntries(pairs), value: numberOf(value) }]
  })
}

/** The sum over all labels; null: there is no such metric. */
export function total(samples: readonly Sample[], name: string): number | null {
  const found = samples.filter((sample) => sample.name === name)
  return found.length === 0 ? null : found.reduce((sum, { value }) => sum + value, 0)
}

export interface Bucket {
  /** Upper bound. */
  le: number
  /** Values up to it. */
  count: number
}

/** The buckets of a histogram, in order of their bounds, summed over all other labels. */
export function bucketsOf(samples: readonly Sample[], name: string): Bucket[] {
  const counts = new Map<number, number>()
  for (const { name: of, labels, value } of samples) {
    if (of !== `${name}_bucket` || labels.le === undefined) continue
    const le = numberOf(labels.le)
    counts.set(le, (counts.get(le) ?? 0) + value)
  }
  return [...counts].map(([le, count]) => ({ le, count })).sort((one, other) => one.le - other.le)
}

/** The values that came between two looks at a histogram. After a restart all of them are new. */
export function bucketsSince(before: readonly Bucket[], now: readonly Bucket[]): Bucket[] {
  const then = new Map(before.map(({ le, count }) => [le, count]))
  const isNew = now.some(({ le, count }) => count < (then.get(le) ?? 0))
  return isNew ? [...now] : now.map(({ le, count }) => ({ le, count: count - (then.get(le) ?? 0) }))
}

/** The bound below which a share of the values is, interpolated in its bucket; null: there are no values. */
export function quantile(buckets: readonly Bucket[], share: number): number | null {
  const all = buckets.at(-1)?.count ?? 0
  if (all === 0) return null
  const wanted = all * share
  let from: Bucket = { le: 0, count: 0 }
  for (const bucket of buckets) {
    if (bucket.count >= wanted) {
      if (bucket.le === Number.POSITIVE_INFINITY || bucket.count === from.count) return from.le
      return from.le + ((wanted - from.count) / (bucket.count - from.count)) * (bucket.le - from.le)
    }
    from = bucket
  }
  return from.le
}
