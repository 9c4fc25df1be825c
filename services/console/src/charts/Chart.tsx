import { Group, Text } from '@mantine/core'
import { useState } from 'react'
import classes from './chart.module.css'
import { Plot, type PlotProps } from './Plot'

interface ChartProps extends Omit<PlotProps, 'onHover' | 'height' | 'sync'> {
  title: string
  height?: number
  sync?: string
  /** Names the series even if there is one alone, because the title does not. */
  isNamed?: boolean
}

/** A chart with its name, and the numbers under the crosshair, or the latest. */
export function Chart({ title, height = 160, sync = 'page', isNamed = false, ...plot }: ChartProps) {
  const [hovered, setHovered] = useState<number | null>(null)
  const { series, format } = plot
  return (
    <figure className={classes.chart}>
      <Group justify="space-between" gap="0 12px" component="figcaption" align="baseline">
        <Text size="sm" fw={500}>
          {title}
        </Text>
        <Group gap={12} className={classes.legend}>
          {series.map(({ label, values, color }) => {
            const value = hovered === null ? values.findLast((one) => one !== null) : values[hovered]
            return (
              <span key={label} className={classes.item}>
                {(isNamed || series.length > 1) && (
                  <>
                    <i style={{ background: `var(${color})` }} />
                    <span>{label}</span>
                  </>
                )}
                <b>{value == null ? '–' : format(value)}</b>
              </span>
            )
          })}
        </Group>
      </Group>
      <div style={{ height }} role="img" aria-label={chartText(title, series, format)}>
        <Plot {...plot} height={height} sync={sync} onHover={setHovered} />
      </div>
    </figure>
  )
}

/** The chart's name for screen readers. */
function chartText(title: string, series: PlotProps['series'], format: PlotProps['format']): string {
  const lines = series.map(({ label, values }) => {
    const known = values.filter((value) => value !== null)
    const latest = known.at(-1)
    if (latest === undefined) return `${label}: no data`
    const [lowest, highest] = [Math.min(...known), Math.max(...known)].map(format)
    return `${label}: ${format(latest)}, between ${lowest} and ${highest} in this time`
  })
  return `${title}. ${lines.join('; ')}`
}
