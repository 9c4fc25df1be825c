// Payloads as people read them.

export type Shape = 'json' | 'text' | 'hex'

const utf8 = new TextDecoder('utf-8', { fatal: true })

/** The text of a payload; null when it is no UTF-8, or has characters that no text has. */
export function textOf(payload: Uint8Array): string | null {
  try {
    const text = utf8.decode(payload)
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these tell bytes from text
    return /[\u0000-\u0008\u000e-\u001f]/.test(text) ? null : text
  } catch {
    return null
  }
}

/** The format that a payload seems to have. */
export function shapeOf(payload: Uint8Array): Shape {
  const text = textOf(payload)
  if (text === null) return 'hex'
  if (!/^\s*[{["]/.test(text)) return 'text'
  try {
    JSON.parse(text)
    return 'json'
  } catch {
    return 'text'
  }
}

export const hexOf = (payload: Uint8Array) =>
  Array.from(payload, (byte) => byte.toString(16).padStart(2, '0')).join(' ')

/** A payload on one line, at most `charsMax` long. */
export function preview(payload: Uint8Array, charsMax: number): string {
  // A character has at most four bytes, a byte in hexadecimal has three.
  const start = payload.subarray(0, charsMax * 4)
  const text = textOf(start) ?? (start.length < payload.length ? textOf(cutAtCharacter(start)) : null)
  const said = text === null ? hexOf(payload.subarray(0, Math.ceil(charsMax / 3))) : text.replace(/\s+/g, ' ')
  return said.length > charsMax ? `${said.slice(0, charsMax)}…` : said
}

/** Without the bytes of a last character that may be cut. */
function cutAtCharacter(payload: Uint8Array): Uint8Array {
  let end = payload.length
  while (end > 0 && end > payload.length - 4 && ((payload[end - 1] ?? 0) & 0xc0) === 0x80) end -= 1
  return payload.subarray(0, Math.max(0, end - 1))
}

/** A payload in full, in a shape that was chosen. */
export function shown(payload: Uint8Array, shape: Shape): string {
  if (shape === 'hex') return lines(payload)
  const text = textOf(payload) ?? new TextDecoder().decode(payload)
  if (shape === 'text') return text
  try {
    JSON.parse(text)
  } catch {
    return text
  }
  return indented(text)
}

const TOKENS = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s"[\]{},:]+/g

/** JSON with a line for each value. The values stay as they were sent: a number such as 12345678901234567890 would lose digits as a number
 * of JavaScript. */
function indented(json: string): string {
  let depth = 0
  let said = ''
  let last = ''
  const line = () => `\n${'  '.repeat(depth)}`
  for (const [token] of json.matchAll(TOKENS)) {
    const isEnd = token === '}' || token === ']'
    const isFirst = last === '{' || last === '['
    if (isEnd) depth -= 1
    if (isEnd ? !isFirst : isFirst) said += line()
    said += token === ':' ? ': ' : token
    if (token === ',') said += line()
    if (token === '{' || token === '[') depth += 1
    last = token
  }
  return said
}

/** Sixteen bytes a line, with what of them is text. */
function lines(payload: Uint8Array): string {
  const said: string[] = []
  for (let at = 0; at < payload.length; at += 16) {
    const row = payload.subarray(at, at + 16)
    const text = Array.from(row, (byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : '.')).join(
      '',
    )
    said.push(`${at.toString(16).padStart(6, '0')}  ${hexOf(row).padEnd(47)}  ${text}`)
  }
  return said.join('\n')
}

/** Bytes of "68 69" or "6869"; null when it is no hexadecimal. */
export function fromHex(text: string): Uint8Array<ArrayBuffer> | null {
  const digits = text.replace(/\s+/g, '')
  if (digits.length % 2 !== 0 || /[^0-9a-f]/i.test(digits)) return null
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16))
}

/** Parts of this size are arguments of one call: a browser refuses a call with 256 Ki of them. */
const CALL_BYTES_MAX = 8_192

export function toBase64(bytes: Uint8Array): string {
  let binary = ''
  for (let at = 0; at < bytes.length; at += CALL_BYTES_MAX) {
    binary += String.fromCharCode(...bytes.subarray(at, at + CALL_BYTES_MAX))
  }
  return btoa(binary)
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0))
}
