import { Tooltip } from '@mantine/core'
import type { ReactNode } from 'react'
import { GLOSSARY, type TermName } from '../lib/glossary'
import classes from './ui.module.css'

/** A term, explained where the pointer or the focus is on it. */
export function Term({ of, children }: { of: TermName; children: ReactNode }) {
  return (
    <Tooltip label={GLOSSARY[of]} events={{ hover: true, focus: true, touch: true }}>
      <button type="button" className={classes.term}>
        {children}
      </button>
    </Tooltip>
  )
}
