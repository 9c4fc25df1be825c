import 'uplot/dist/uPlot.min.css'
import { useComputedColorScheme } from '@mantine/core'
import { useEffect, useRef } from 'react'
import uPlot from 'uplot'
import { bytes } from '../lib/format'
import { mostShown } from './axis'

export interface PlotProps {
  /** Unix seconds, ascending. */
  times: number[]
  series: { label: string; values: (number | null)[]; color: string; dash?: number[] }[]
  /** Text of a value. If it is `bytes` of lib/format, the steps of the axis are powers of two. */
  format: (value: number) => string
  height: number
  /** Charts with the same key share their crosshair. */
  sync: string
  /** Drawn as a line of its own. */
  limit?: number | null
  /** First and last second that the chart shows. */
  range: [number, number]
  /** Gets the index in `times` under the pointer; null when the pointer has left. */
  onHover: (at: number | null) => void
  /** Each value holds from its time to the next one. */
  isStepped?: boolean
}

const POWERS_OF_TWO = Array.from({ length: 50 }, (_, power) => 2 ** power)

/** Room at the right for half of a label under the last point. */
const EDGE_PX = 16
/** The highest value stays below the upper edge. */
const HEADROOM = 1.08

/** The end of an axis, so that its last line has a label: 1, 2, 4, 6 or 10 times a power of ten; for bytes 1, 1.5 or 2 times a
 * power of two. `most` must be above 0, which mostShown ensures. */
function top(most: number, isBinary: boolean): number {
  if (isBinary) {
    const power = 2 ** Math.floor(Math.log2(most))
    return [1, 1.5, 2].map((times) => times * power).find((end) => end >= most) ?? most
  }
  const power = 10 ** Math.floor(Math.log10(most))
  return [1, 2, 4, 6, 10].map((times) => times * power).find((end) => end >= most) ?? most
}

/** A label at the edge would be cut. */
const fits = (drawn: uPlot, at: number) => {
  const from = drawn.valToPos(at, 'x')
  return from >= 0 && from <= drawn.bbox.width / devicePixelRatio - EDGE_PX / 2
}

/** Points between two gaps: no line leads to them. */
function lonely(drawn: uPlot, series: number): number[] {
  const values = drawn.data[series] ?? []
  return [...values.keys()].filter(
    (at) => values[at] != null && values[at - 1] == null && values[at + 1] == null,
  )
}

const css = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

/** A chart on a canvas. */
export function Plot(props: PlotProps) {
  const { times, series, height, sync, isStepped } = props
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>(undefined)
  const latest = useRef(props)
  latest.current = props
  const scheme = useComputedColorScheme()
  const shape = series.map(({ label, color }) => `${label} ${color}`).join()

  // biome-ignore lint/correctness/useExhaustiveDependencies: what changes each second is set below
  useEffect(() => {
    if (!box.current) return
    const drawn = new uPlot(
      options(latest, box.current.clientWidth, height, sync),
      dataOf(latest.current),
      box.current,
    )
    plot.current = drawn
    const observer = new ResizeObserver(([entry]) => {
      if (entry) drawn.setSize({ width: entry.contentRect.width, height })
    })
    observer.observe(box.current)
    return () => {
      observer.disconnect()
      drawn.destroy()
    }
  }, [scheme, height, sync, shape, isStepped])

  // biome-ignore lint/correctness/useExhaustiveDependencies: the chart reads the latest of everything
  useEffect(() => plot.current?.setData(dataOf(latest.current)), [times, series])

  return <div ref={box} style={{ height }} />
}

const dataOf = ({ times, series }: PlotProps) =>
  [times, ...series.map(({ values }) => values)] as uPlot.AlignedData

function options(latest: { current: PlotProps }, width: number, height: number, sync: string): uPlot.Options {
  const soft = css('--soft')
  const grid = { stroke: css('--line'), width: 1 }
  const font = '12px "Inter Variable", sans-serif'
  const axis = { stroke: soft, grid, ticks: { show: false }, font }
  return {
    width,
    height,
    padding: [12, EDGE_PX, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: sync }, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      x: { time: true, range: () => latest.current.range },
      y: {
        range: (_, __, max) => {
          const most = mostShown(max, latest.current.limit)
          return [0, top(most * HEADROOM, latest.current.format === bytes)]
        },
      },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        space: 80,
        size: 28,
        values: (drawn, splits) => splits.map((at) => (fits(drawn, at) ? clock(latest)(at) : '')),
      },
      {
        ...axis,
        size: 64,
        space: 36,
        // Sizes are read in steps of 1024.
        incrs: latest.current.format === bytes ? POWERS_OF_TWO : undefined,
        values: (_, splits) => splits.map((value) => latest.current.format(value)),
      },
    ],
    series: [
      {},
      ...latest.current.series.map(({ label, color, dash }) => ({
        label,
        stroke: css(color),
        fill: latest.current.series.length === 1 ? `${css(color)}1f` : undefined,
        width: 1.5,
        dash,
        points: { show: false, size: 5, fill: css(color), filter: lonely },
        paths: latest.current.isStepped ? uPlot.paths.stepped?.({ align: 1 }) : undefined,
        spanGaps: false,
      })),
    ],
    hooks: {
      setCursor: [({ cursor }) => latest.current.onHover(cursor.idx ?? null)],
      draw: [(drawn) => drawLimit(drawn, latest.current)],
    },
  }
}

const clock = (latest: { current: PlotProps }) => (at: number) => {
  const [from, to] = latest.current.range
  const date = new Date(at * 1000)
  const two = (value: number) => String(value).padStart(2, '0')
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`
  if (to - from <= 600) return `${time}:${two(date.getSeconds())}`
  if (to - from <= 2 * 86_400) return time
  return date.toLocaleDateString('en-GB', { day: 'numeric', month: 'short' })
}

function drawLimit(drawn: uPlot, { limit, format }: PlotProps) {
  if (limit == null) return
  const { ctx, bbox } = drawn
  const isAbove = limit > (drawn.scales.y?.max ?? limit)
  const y = Math.round(drawn.valToPos(limit, 'y', true))
  ctx.save()
  ctx.strokeStyle = css('--bad')
  ctx.setLineDash([6, 4])
  if (!isAbove) {
    ctx.beginPath()
    ctx.moveTo(bbox.left, y)
    ctx.lineTo(bbox.left + bbox.width, y)
    ctx.stroke()
  }
  ctx.fillStyle = css('--bad')
  ctx.font = `${12 * devicePixelRatio}px "Inter Variable", sans-serif`
  const said = isAbove ? `limit ${format(limit)}, above this chart` : 'limit'
  ctx.fillText(said, bbox.left + 6, isAbove ? bbox.top + 12 * devicePixelRatio : y - 5)
  ctx.restore()
}
