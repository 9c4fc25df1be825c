import { Anchor, Group, Stack, Text } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useBroker } from '../../../api/brokers'
import { topicLevelsQuery } from '../../../api/live'
import { count, cut } from '../../../lib/format'
import { branchOf } from '../../../lib/topics'

/** Ways to the other topics, when the tree does not have all: the branches of the filter, from the server. */
export function Branches({ filter, shown }: { filter: string | undefined; shown: number }) {
  const { path } = useBroker()
  const below = branchOf(filter)
  const levels = useQuery({ ...topicLevelsQuery(path, below ?? undefined), enabled: below !== null })
  const items = levels.data?.items.filter(({ level, topic }) => !/[+#]/.test(level) && topic !== below) ?? []
  return (
    <Stack gap="xs" p="md">
      <Text size="sm" c="dimmed">
        The tree has the first {count(shown)} retained topics.{' '}
        {items.length > 0 ? 'Open a branch to see the others:' : 'Narrow the filter to see others.'}
      </Text>
      {items.length > 0 && (
        <Group component="ul" gap="sm" aria-label="Branches" p={0} m={0} style={{ listStyle: 'none' }}>
          {items.map(({ level, topic, retained_messages, is_more }) => (
            <li key={topic}>
              <Anchor
                component={Link}
                to="."
                search={(before: object) => ({ ...before, filter: `${topic}/#` }) as never}
                size="sm"
                className="mono"
              >
                {level === '' ? '(empty level)' : cut(level)}
              </Anchor>{' '}
              <Text span size="sm" c="dimmed">
                {count(retained_messages)}
                {is_more && '+'}
              </Text>
            </li>
          ))}
          {levels.data?.next_cursor && (
            <Text component="li" size="sm" c="dimmed">
              and more
            </Text>
          )}
        </Group>
      )}
    </Stack>
  )
}
