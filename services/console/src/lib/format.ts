// Numbers, sizes and times as the console writes them.

const SI = ['', 'k', 'M', 'G', 'T']
const BINARY = ['B', 'KiB', 'MiB', 'GiB', 'TiB']

function scaled(value: number, step: number, units: string[]): [string, string] {
  let rest = Math.abs(value)
  let unit = 0
  // 999.96 would be written as 1000.0 of the smaller unit.
  while (unit < units.length - 1 && rest >= step - 0.05) {
    rest /= step
    unit += 1
  }
  const digits = rest !== 0 && (unit > 0 || !Number.isInteger(rest)) ? rest.toFixed(1) : String(rest)
  return [`${value < 0 ? '−' : ''}${digits.replace(/\.0$/, unit > 0 ? '.0' : '')}`, units[unit] ?? '']
}

/** 1234 is "1.2k". */
export const si = (value: number) => scaled(value, 1000, SI).join('')

/** 2048 is "2.0 KiB". */
export const bytes = (value: number) => scaled(value, 1024, BINARY).join(' ')

/** 0.25 is "0.3 ms", 1500 is "1.5 s". */
export const milliseconds = (value: number) =>
  value >= 999.95 ? `${(value / 1000).toFixed(1)} s` : `${value === 0 ? 0 : value.toFixed(1)} ms`

/** 18204 is "18,204". Not Intl: its first use loads its tables, which is a tenth of the first page's time. */
export const count = (value: number) => String(value).replace(/\B(?=(\d{3})+$)/g, ',')

/** "client CA own" is "Client CA own". */
export const capitalised = (text: string) => text.charAt(0).toUpperCase() + text.slice(1)

/** Characters that do not show, and those that turn the direction of text: a name with one of them looks like another name. The list is
 * that of services/access/src/model/invalid.rs, and white space at an end. */
const UNSEEN =
  /(?:\u{34F}|[\p{Cc}\u{AD}\u{61C}\u{115F}\u{1160}\u{180E}\u{200B}-\u{200F}\u{2028}-\u{202E}\u{2060}-\u{206F}\u{2800}\u{3164}\u{FFA0}\u{FEFF}\u{FFF9}-\u{FFFB}\u{E0000}-\u{E0FFF}])+|^\s|\s$/gu

/** A text that others have chosen, such as a client id, with `\u{200B}` for a character that does not show. */
export const legible = (text: string) =>
  text.replace(UNSEEN, (found) =>
    Array.from(found, (one) => `\\u{${one.codePointAt(0)?.toString(16).toUpperCase()}}`).join(''),
  )

/** A long text as a row shows it. A topic may have thousands of bytes, and the browser measures all of them to cut one line. */
export const cut = (text: string, charsMax = 300) =>
  text.length > charsMax ? `${legible(text.slice(0, charsMax))}…` : legible(text)

/** "1 message", "2 messages". */
export const plural = (value: number, noun: string, nouns = `${noun}s`) =>
  `${count(value)} ${value === 1 ? noun : nouns}`

const PARTS: [string, number][] = [
  ['d', 86_400],
  ['h', 3_600],
  ['min', 60],
  ['s', 1],
]

/** 90 s is "1 min 30 s"; at most two parts. */
export function duration(seconds: number): string {
  let rest = Math.max(0, Math.round(seconds))
  const said: string[] = []
  for (const [unit, size] of PARTS) {
    const whole = Math.floor(rest / size)
    if (whole === 0) {
      if (said.length > 0) break
      continue
    }
    said.push(`${whole} ${unit}`)
    rest -= whole * size
    if (said.length === 2) break
  }
  return said.join(' ') || '0 s'
}

/** How long ago, or how soon: "3 s ago", "in 2 h". One part. */
export function relative(at: number, now: number): string {
  const seconds = Math.round((at - now) / 1000)
  const distance = Math.abs(seconds)
  if (distance < 1) return 'now'
  const [unit, size] = PARTS.find(([, size]) => distance >= size) ?? ['s', 1]
  if (seconds < 0) return `${Math.floor(distance / size)} ${unit} ago`
  // A link that was just made to last seven days ends in seven days, and not in six.
  return `in ${Math.round(distance / size)} ${unit}`
}

/** "2026-11-22 12:03:04", in the reader's time zone. */
export function absolute(at: number): string {
  const date = new Date(at)
  const two = (value: number) => String(value).padStart(2, '0')
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`
}

/** Millionths of the region's currency: 1_500_000 is "1.50". */
export const money = (micros: number) =>
  (micros / 1_000_000).toLocaleString('en-US', { minimumFractionDigits: 2, maximumFractionDigits: 2 })
