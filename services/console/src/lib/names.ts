/** A name of the API made from any text: letters, digits, "-" and "_", at most 64 of them. Different texts may get the same name, so
 * the caller must create with it and not replace. */
export function nameFrom(text: string): string {
  const name = text
    .toLowerCase()
    .replace(/[^a-z0-9_-]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 64)
  return name === '' ? 'unnamed' : name
}

export const banName = (client: string) => nameFrom(`client-${client}`)
