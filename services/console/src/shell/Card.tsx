import { Group, Text, Title } from '@mantine/core'
import { useDocumentTitle } from '@mantine/hooks'
import { createContext, type ReactNode, useContext, useEffect } from 'react'
import mark from '../favicon.svg'
import { announcePage } from '../ui/announce'
import { OfflineBar } from './OfflineBar'
import classes from './shell.module.css'

/** True for cards in a dialog over a page, which keeps its title and its landmarks. */
export const CardInDialog = createContext(false)

/** The frame of the pages before the sign-in. */
export function Card({ title, lead, children }: { title: string; lead?: ReactNode; children: ReactNode }) {
  const isInDialog = useContext(CardInDialog)
  useDocumentTitle(isInDialog ? document.title : `${title} · Millrace`)
  useEffect(() => announcePage(title), [title])
  const Place = isInDialog ? 'div' : 'main'
  return (
    <div className={classes.sheet}>
      <Place className={classes.card}>
        <Group gap={10} mb="lg">
          <img src={mark} width={28} height={28} alt="" />
          <Text fw={600}>Millrace</Text>
        </Group>
        <Title order={1}>{title}</Title>
        {lead && (
          <Text c="dimmed" size="sm" mt={4} component="div">
            {lead}
          </Text>
        )}
        {children}
      </Place>
      <OfflineBar />
    </div>
  )
}
