import { cut, legible } from '../lib/format'
import { CopyButton } from './Code'

/** A topic may have thousands of bytes: so many lines hide all else. */
const CHARS_MAX = 600

/** A topic or another text that may be very long: it is cut, and a button copies the whole text. */
export function Long({ text, what }: { text: string; what: string }) {
  if (text.length <= CHARS_MAX) return <span className="mono">{legible(text)}</span>
  return (
    <span className="mono">
      {cut(text, CHARS_MAX)} <CopyButton text={text} label={`Copy the whole ${what}`} />
    </span>
  )
}
