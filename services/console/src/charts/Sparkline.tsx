interface SparklineProps {
  values: (number | null)[]
  label: string
}

const WIDTH = 240
const HEIGHT = 36

/** The scale ends at this multiple of the highest value, so that a steady line does not touch the number above the chart. */
const HEADROOM = 1.3

/** A small line chart without axes. A value of null leaves a gap in the line. */
export function Sparkline({ values, label }: SparklineProps) {
  const max = Math.max(1, ...values.map((value) => value ?? 0)) * HEADROOM
  const step = WIDTH / Math.max(1, values.length - 1)
  let isDrawing = false
  const path = values
    .map((value, at) => {
      if (value === null) {
        isDrawing = false
        return ''
      }
      const command = isDrawing ? 'L' : 'M'
      isDrawing = true
      return `${command}${(at * step).toFixed(1)} ${(HEIGHT - 2 - (value / max) * (HEIGHT - 4)).toFixed(1)}`
    })
    .join('')
  return (
    <svg
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      width="100%"
      height={HEIGHT}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <path d={`M0 ${HEIGHT - 1}H${WIDTH}`} stroke="var(--line)" vectorEffect="non-scaling-stroke" />
      <path d={path} fill="none" stroke="var(--c1)" strokeWidth="1.5" vectorEffect="non-scaling-stroke" />
    </svg>
  )
}
