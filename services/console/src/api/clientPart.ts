/**
 * A client id as a part of a path. The API decodes `base64:…`, so an id that begins with it is itself encoded, because otherwise
 * it would name another client. So are `.` and `..`, because browsers resolve them even when they are escaped.
 */
export function clientPart(id: string): string {
  if (id !== '.' && id !== '..' && !id.startsWith('base64:')) return id
  const binary = String.fromCharCode(...new TextEncoder().encode(id))
  return `base64:${btoa(binary).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')}`
}
