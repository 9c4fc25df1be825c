import { Group, Text, Title } from '@mantine/core'
import { useDocumentTitle } from '@mantine/hooks'
import type { ReactNode } from 'react'
import { OfflineBar } from './OfflineBar'
import classes from './shell.module.css'

/** The frame of the pages before the sign-in. */
export function Card({ title, lead, children }: { title: string; lead?: ReactNode; children: ReactNode }) {
  useDocumentTitle(`${title} · Millrace`)
  return (
    <div className={classes.sheet}>
      <OfflineBar />
      <main className={classes.card}>
        <Group gap={10} mb="lg">
          <img src="/favicon.svg" width={28} height={28} alt="" />
          <Text fw={600}>Millrace</Text>
        </Group>
        <Title order={1}>{title}</Title>
        {lead && (
          <Text c="dimmed" size="sm" mt={4} component="div">
            {lead}
          </Text>
        )}
        {children}
      </main>
    </div>
  )
}
