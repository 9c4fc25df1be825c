import { useId } from 'react'
import classes from './ui.module.css'

interface ChoiceProps {
  label: string
  data: readonly { value: string; label: string }[]
  value: string
  onChange: (value: string) => void
  /** As wide as the fields of a form. */
  isWide?: boolean
}

/** One of a few values. Mantine's SegmentedControl measures its options, so the browser lays out the whole page before it paints. */
export function Choice({ label, data, value, onChange, isWide }: ChoiceProps) {
  const name = useId()
  return (
    <div role="radiogroup" aria-label={label} className={classes.choice} data-wide={isWide || undefined}>
      {data.map((one) => (
        <label key={one.value}>
          <input
            type="radio"
            name={name}
            value={one.value}
            checked={one.value === value}
            onChange={() => onChange(one.value)}
          />
          <span>{one.label}</span>
        </label>
      ))}
    </div>
  )
}
