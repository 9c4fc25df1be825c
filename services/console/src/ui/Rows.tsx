import { defaultRangeExtractor, useVirtualizer } from '@tanstack/react-virtual'
import { type CSSProperties, type FocusEvent, memo, type ReactNode, useEffect, useRef, useState } from 'react'
import { rowHeight, useDensity } from './density'
import { RowKeys } from './rowKeys'
import classes from './rows.module.css'

/** Height of a line in a row. */
const LINE_PX = 20
/** Rows drawn above and below those in sight. */
const OVERSCAN = 3

export interface Column<T> {
  key: string
  header: ReactNode
  cell: (row: T) => ReactNode
  /** A track of the grid, such as "minmax(0, 2fr)" or "96px". */
  width: string
  /** The track where the table is narrow, when that differs. */
  narrowWidth?: string
  isNumber?: boolean
  /** Left out where the table is narrow. */
  isExtra?: boolean
  /** Text that may take as many lines as `rowPx` has room for. */
  isWrapped?: boolean
}

interface RowsProps<T> {
  label: string
  rows: T[]
  columns: Column<T>[]
  idOf: (row: T) => string
  onOpen?: (row: T) => void
  /** Text after that of the first cell, for screen readers: it tells rows apart whose first cells are the same. */
  detailOf?: (row: T) => string
  /** The first cell has a link or a button of its own, which opens the row by keyboard. */
  hasOwnControl?: boolean
  /** Height of a row of a spacious table. */
  rowPx?: number
  /** Height of the list; without it the list is as high as its rows, at most `rowsShown`. */
  height?: number | string
  rowsShown?: number
  /** Called when the end of the rows comes into sight. */
  onEnd?: () => void
  empty?: ReactNode
  /** Rows that are highlighted for a moment. */
  isNew?: (row: T) => boolean
  /** Elements of rows that left may draw other rows. Only for cells without state: an open menu would stay open. */
  reusesElements?: boolean
}

/** A table that draws only the rows in sight, so that ten thousand cost what twenty do. */
export function Rows<T>(props: RowsProps<T>) {
  const {
    label,
    rows,
    columns,
    idOf,
    onOpen,
    detailOf,
    rowPx: spaciousPx = 44,
    height,
    rowsShown = 14,
    onEnd,
    empty,
    hasOwnControl,
    isNew,
    reusesElements = false,
  } = props
  const density = useDensity()
  const rowPx = rowHeight(spaciousPx, density)
  const scroll = useRef<HTMLDivElement>(null)
  const focused = useRef<string | null>(null)
  const [keys] = useState(() => new RowKeys())
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => rowPx,
    overscan: OVERSCAN,
    // The row with the focus stays in the document when it is scrolled out of sight.
    rangeExtractor: (range) => {
      const drawn = defaultRangeExtractor(range)
      const at = focused.current === null ? -1 : rows.findIndex((row) => idOf(row) === focused.current)
      return at === -1 || drawn.includes(at) ? drawn : [...drawn, at].sort((one, other) => one - other)
    },
    getItemKey: (at) => {
      const row = rows[at]
      return row === undefined ? at : idOf(row)
    },
  })
  // biome-ignore lint/correctness/useExhaustiveDependencies: rows of another height begin elsewhere
  useEffect(() => virtual.measure(), [virtual, rowPx])
  const shown = virtual.getVirtualItems()
  const last = (virtual.range?.endIndex ?? -1) + OVERSCAN
  const isAtEnd = rows.length > 0 && last >= rows.length - 1
  useEffect(() => {
    if (isAtEnd) onEnd?.()
  }, [isAtEnd, onEnd])

  const elements = reusesElements
    ? keys.assign(
        shown.map(({ key }) => String(key)),
        focused.current,
        virtual.isScrolling,
      )
    : null
  const noteFocus = ({ target }: FocusEvent) => {
    const index = target.closest('[role=row]')?.getAttribute('aria-rowindex')
    const row = index ? rows[Number(index) - 2] : undefined
    focused.current = row === undefined ? null : idOf(row)
  }
  const forgetFocus = () => {
    focused.current = null
  }

  const wide = columns.map(({ width }) => width).join(' ')
  const narrow = columns
    .flatMap(({ width, narrowWidth, isExtra }) => (isExtra ? [] : (narrowWidth ?? width)))
    .join(' ')
  const lines = Math.floor(rowPx / LINE_PX)
  const style = { '--columns': wide, '--columns-narrow': narrow, '--lines': lines } as CSSProperties
  const own = height ?? Math.min(rows.length, rowsShown) * rowPx + 2
  return (
    <>
      <div
        role="table"
        aria-label={label}
        aria-rowcount={rows.length + 1}
        className={classes.table}
        data-density={density}
        style={style}
      >
        <div role="rowgroup">
          <div role="row" className={classes.head} aria-rowindex={1}>
            {columns.map(({ key, header, isNumber, isExtra }) => (
              <div
                role="columnheader"
                key={key}
                data-number={isNumber || undefined}
                data-extra={isExtra || undefined}
              >
                {header}
              </div>
            ))}
          </div>
        </div>
        {rows.length > 0 && (
          <div
            ref={scroll}
            className={classes.scroll}
            style={{ height: own }}
            role="rowgroup"
            // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard
            tabIndex={0}
            onFocus={noteFocus}
            onBlur={forgetFocus}
          >
            <div style={{ height: virtual.getTotalSize() }} role="presentation" className={classes.all}>
              {shown.map(({ index, start, key }) => {
                const row = rows[index]
                if (row === undefined) return null
                return (
                  <DrawnRow
                    key={elements?.get(String(key)) ?? key}
                    row={row as unknown}
                    index={index}
                    start={start}
                    rowPx={rowPx}
                    columns={columns as Column<unknown>[]}
                    onOpen={onOpen as ((row: unknown) => void) | undefined}
                    detailOf={detailOf as ((row: unknown) => string) | undefined}
                    hasOwnControl={hasOwnControl}
                    isNew={isNew?.(row)}
                    isLast={index === rows.length - 1}
                  />
                )
              })}
            </div>
          </div>
        )}
      </div>
      {/* A table may have rows only. */}
      {rows.length === 0 && empty}
    </>
  )
}

interface DrawnRowProps {
  row: unknown
  index: number
  start: number
  rowPx: number
  columns: Column<unknown>[]
  onOpen: ((row: unknown) => void) | undefined
  detailOf: ((row: unknown) => string) | undefined
  hasOwnControl: boolean | undefined
  isNew: boolean | undefined
  isLast: boolean
}

/** Rows that stay in sight are not drawn again while the list scrolls. */
const DrawnRow = memo(function DrawnRow(props: DrawnRowProps) {
  const { row, index, start, rowPx, columns, onOpen, detailOf, hasOwnControl, isNew, isLast } = props
  return (
    <div
      role="row"
      aria-rowindex={index + 2}
      className={classes.row}
      data-opens={onOpen ? true : undefined}
      data-new={isNew || undefined}
      data-last={isLast || undefined}
      style={{ height: rowPx, transform: `translateY(${start}px)` }}
      onClick={
        onOpen &&
        ((event) => {
          const isControl = (event.target as Element).closest('a, button, input')
          if (!isControl) onOpen(row)
        })
      }
    >
      {columns.map(({ key, cell, isNumber, isExtra, isWrapped }, at) => (
        <div
          role="cell"
          key={key}
          data-wraps={isWrapped || undefined}
          data-number={isNumber || undefined}
          data-extra={isExtra || undefined}
        >
          {onOpen && !hasOwnControl && at === 0 ? (
            <button type="button" className={classes.open} onClick={() => onOpen(row)}>
              {cell(row)}
              {detailOf && <span className={classes.detail}>, {detailOf(row)}</span>}
            </button>
          ) : (
            cell(row)
          )}
        </div>
      ))}
    </div>
  )
})
