/** How a number has changed over the values of a time range: "↑ 12"; null while fewer than two are known. */
export function trendOf(
  values: readonly (number | null)[],
  format: (value: number) => string,
): string | null {
  const known = values.filter((value) => value !== null)
  const [first] = known
  const last = known.at(-1)
  if (first === undefined || last === undefined || known.length < 2) return null
  const [before, now] = [format(first), format(last)]
  if (before === now) return 'steady'
  return `${last > first ? '↑' : '↓'} from ${before}`
}
