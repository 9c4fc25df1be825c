import { Text } from '@mantine/core'
import type { ReactNode } from 'react'
import type { TermName } from '../lib/glossary'
import { Term } from './Term'
import classes from './ui.module.css'

interface StatProps {
  label: ReactNode
  value: ReactNode
  unit?: string
  /** The trend, or what the number stands beside. */
  note?: ReactNode
  /** Explains the label. */
  term?: TermName
  /** The number over the chosen time range. */
  chart?: ReactNode
}

export function Stat({ label, value, unit, note, term, chart }: StatProps) {
  return (
    <div className={classes.stat}>
      <Text size="sm" c="dimmed" component="div">
        {term ? <Term of={term}>{label}</Term> : label}
      </Text>
      <span className={classes.statValue}>
        {value}
        {unit && <small>{unit}</small>}
      </span>
      <Text size="xs" c="dimmed" component="div" mih={18}>
        {note}
      </Text>
      {chart}
    </div>
  )
}

/** At most four headline numbers. */
export function Stats({ children }: { children: ReactNode }) {
  return <div className={classes.stats}>{children}</div>
}

/** Names and values. */
export function Facts({ rows }: { rows: [ReactNode, ReactNode][] }) {
  return (
    <dl className={classes.facts}>
      {rows.map(([name, value], at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the rows of a page do not change their order
        <div key={at} style={{ display: 'contents' }}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  )
}
