import { Button, Collapse } from '@mantine/core'
import { IconChevronDown, IconChevronRight } from '@tabler/icons-react'
import { type ReactNode, useId, useState } from 'react'

interface MoreProps {
  label?: string
  /** The fields have values already. */
  isOpenAtFirst?: boolean
  /** A field with a mistake must be seen. */
  isWrong?: boolean
  children: ReactNode
}

/** Fields that most people leave alone, behind a button. */
export function More({ label = 'More', isOpenAtFirst = false, isWrong = false, children }: MoreProps) {
  const id = useId()
  const [isOpen, setOpen] = useState(isOpenAtFirst)
  const isShown = isOpen || isWrong
  const Icon = isShown ? IconChevronDown : IconChevronRight
  return (
    <div>
      <Button
        size="compact-sm"
        variant="subtle"
        color="gray"
        leftSection={<Icon size={14} />}
        aria-expanded={isShown}
        aria-controls={id}
        onClick={() => setOpen(!isShown)}
      >
        {label}
      </Button>
      <Collapse expanded={isShown} id={id}>
        {isShown && children}
      </Collapse>
    </div>
  )
}
