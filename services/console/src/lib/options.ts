/** Longer text would not fit into a narrow window without a break. */
const CHARS_MAX = 24

/** A command in parts, each second of which stays in one line: an option, with its value if both fit into the line. */
export function optionParts(text: string): string[] {
  const parts: string[] = []
  let rest = 0
  for (const { 0: found, index } of text.matchAll(/(?<=^|\s)--?[a-z][\w-]*(?:[ =](?!-)\S+)?/gi)) {
    const short = found.length <= CHARS_MAX ? found : (/^[\w-]+/.exec(found)?.[0] ?? '')
    if (short === '' || short.length > CHARS_MAX) continue
    parts.push(text.slice(rest, index), short)
    rest = index + short.length
  }
  return [...parts, text.slice(rest)]
}
