const NAME_MAX = 64

/** A name of the API made from any text: letters, digits, "-" and "_", at most 64 of them. Different texts may get the same name. */
export function nameFrom(text: string): string {
  const name = text
    .toLowerCase()
    .replace(/[^a-z0-9_-]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, NAME_MAX)
  return name === '' ? 'unnamed' : name
}

/** The same, with a hash behind it if the text is no such name itself or looks like a name with a hash. Two texts get the same name
 * only if somebody searched for such a pair. */
export function ownNameFrom(text: string): string {
  const name = nameFrom(text)
  if (name === text && !/-[0-9a-f]{16}$/.test(text)) return name
  const end = `-${fnv1a(text, 0x811c9dc5)}${fnv1a(`${text}.`, 0x9e3779b9)}`
  return name.slice(0, NAME_MAX - end.length) + end
}

/** FNV-1a with 32 bits, over UTF-16. */
function fnv1a(text: string, start: number): string {
  let hash = start
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193) >>> 0
  return hash.toString(16).padStart(8, '0')
}

export const banName = (client: string) => ownNameFrom(`client-${client}`)
