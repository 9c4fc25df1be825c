import { Text, UnstyledButton, VisuallyHidden } from '@mantine/core'
import { IconSearch } from '@tabler/icons-react'
import classes from './shell.module.css'

/** Opens the command palette, which finds pages, brokers and clients. */
export function SearchButton({ open }: { open: () => void }) {
  return (
    <UnstyledButton onClick={open} className={classes.search} aria-keyshortcuts="Control+K">
      <VisuallyHidden hiddenFrom="sm">Search</VisuallyHidden>
      <IconSearch size={16} />
      <Text size="sm" c="dimmed" visibleFrom="sm" component="span">
        Search
      </Text>
      <Text size="xs" c="dimmed" visibleFrom="sm" component="kbd" className={classes.key} aria-hidden>
        Ctrl K
      </Text>
    </UnstyledButton>
  )
}
