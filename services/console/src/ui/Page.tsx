import { Group, Text, Title } from '@mantine/core'
import { useDocumentTitle } from '@mantine/hooks'
import { createContext, type ReactNode, useContext, useEffect } from 'react'
import { legible } from '../lib/format'
import { announcePage } from './announce'
import classes from './ui.module.css'

/** The broker that pages below belong to. The title of the browser's tab names it. */
export const TitleScope = createContext<string | null>(null)

/** Level of a heading within: 3 below the title of a panel. */
export const HeadingLevel = createContext<2 | 3>(2)

interface PageProps {
  title: string
  /** One sentence that says what the page is for. */
  lead?: ReactNode
  actions?: ReactNode
  children: ReactNode
  /** A page of a few fields. */
  isNarrow?: boolean
}

export function Page({ title, lead, actions, children, isNarrow }: PageProps) {
  const scope = useContext(TitleScope)
  const said = legible(title)
  const names = scope && scope !== title ? [said, scope] : [said]
  useDocumentTitle([...names, 'Millrace'].join(' · '))
  const name = names.join(', ')
  useEffect(() => announcePage(name), [name])
  return (
    <div className={classes.page} data-narrow={isNarrow || undefined}>
      <Group justify="space-between" align={lead ? 'flex-start' : 'center'} gap="sm" mb="lg">
        <div className={classes.heading}>
          <Title order={1}>{said}</Title>
          {lead && (
            <Text c="dimmed" size="sm" mt={4}>
              {lead}
            </Text>
          )}
        </div>
        {actions && (
          <Group gap="xs" maw="100%">
            {actions}
          </Group>
        )}
      </Group>
      {children}
    </div>
  )
}

interface PanelProps {
  title?: ReactNode
  lead?: ReactNode
  actions?: ReactNode
  children?: ReactNode
  /** Without space at the sides, for tables. */
  isFlush?: boolean
  id?: string
}

export function Panel({ title, lead, actions, children, isFlush, id }: PanelProps) {
  return (
    <section className={classes.panel} data-flush={isFlush || undefined} id={id}>
      {(title || actions) && (
        <Group
          justify="space-between"
          align={lead ? 'flex-start' : 'center'}
          gap="sm"
          className={classes.panelHead}
        >
          <div className={classes.heading}>
            {title && <Title order={2}>{title}</Title>}
            {lead && (
              <Text c="dimmed" size="sm" mt={2}>
                {lead}
              </Text>
            )}
          </div>
          {actions && <Group gap="xs">{actions}</Group>}
        </Group>
      )}
      <HeadingLevel value={title ? 3 : 2}>{children}</HeadingLevel>
    </section>
  )
}
