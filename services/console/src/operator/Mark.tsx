import type { ReactNode } from 'react'

/** A sentence about a state, with a sign of its own for each colour. */
export const Mark = ({ color, children }: { color: 'good' | 'warn' | 'bad'; children: ReactNode }) => (
  <span>
    <span style={{ color: `var(--${color})` }} aria-hidden>
      {color === 'good' ? '●' : color === 'warn' ? '▲' : '■'}
    </span>{' '}
    {children}
  </span>
)
