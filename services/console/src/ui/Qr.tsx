import { encode } from 'uqr'
import classes from './ui.module.css'

/** Cells of white around the code, without which cameras do not find it. */
const QUIET_CELLS = 4

/** A QR code, drawn here. It stays dark on white in both themes, because not every camera reads the inverse. */
export function Qr({ text, label }: { text: string; label: string }) {
  const { size, data } = encode(text, { ecc: 'M', border: QUIET_CELLS })
  const path = data.flatMap((row, y) => row.map((isDark, x) => (isDark ? `M${x} ${y}h1v1h-1z` : ''))).join('')
  return (
    <svg
      className={classes.qr}
      viewBox={`0 0 ${size} ${size}`}
      shapeRendering="crispEdges"
      role="img"
      aria-label={label}
    >
      <path d={path} />
    </svg>
  )
}
