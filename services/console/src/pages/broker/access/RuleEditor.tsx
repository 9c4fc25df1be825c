import { ActionIcon, Button, Checkbox, Group, Select, Stack, Text, TextInput } from '@mantine/core'
import { IconArrowUp, IconPlus, IconX } from '@tabler/icons-react'
import { useRef } from 'react'
import type { Rule } from '../../../api/access'
import { filterProblem } from '../../../lib/topics'
import classes from './rules.module.css'

interface RuleEditorProps {
  rules: Rule[]
  onChange: (rules: Rule[]) => void
  isReadOnly?: boolean
}

const QOS = [
  { value: '2', label: 'with any QoS' },
  { value: '1', label: 'up to QoS 1' },
  { value: '0', label: 'only QoS 0' },
]
const NEW: Rule = { effect: 'allow', action: 'publish', filter: 'up/%c/#' }

/** Rules in their order: the first match decides. */
export function RuleEditor({ rules, onChange, isReadOnly }: RuleEditorProps) {
  // Rows keep their fields while others are moved or removed.
  const ids = useRef({ next: 0, of: [] as number[] })
  while (ids.current.of.length < rules.length) ids.current.of.push(ids.current.next++)

  const change = (at: number, to: Partial<Rule>) =>
    onChange(rules.map((rule, index) => (index === at ? { ...rule, ...to } : rule)))
  const remove = (at: number) => {
    ids.current.of.splice(at, 1)
    onChange(rules.filter((_, index) => index !== at))
  }
  const raise = (at: number) => {
    const swap = <T,>(list: T[]) => list.toSpliced(at - 1, 2, list[at] as T, list[at - 1] as T)
    ids.current.of = swap(ids.current.of)
    onChange(swap(rules))
  }
  return (
    <Stack gap="sm">
      {rules.map((rule, at) => (
        <fieldset key={ids.current.of[at]} className={classes.rule} disabled={isReadOnly}>
          <legend className={classes.legend}>Rule {at + 1}</legend>
          <Select
            aria-label="Effect"
            data={[
              { value: 'allow', label: 'Allow' },
              { value: 'deny', label: 'Deny' },
            ]}
            value={rule.effect}
            onChange={(effect) => change(at, { effect: effect as Rule['effect'] })}
            allowDeselect={false}
          />
          <Select
            aria-label="Action"
            data={[
              { value: 'publish', label: 'publish' },
              { value: 'subscribe', label: 'subscribe' },
              { value: 'all', label: 'both' },
            ]}
            value={rule.action}
            onChange={(action) => change(at, { action: action as Rule['action'] })}
            allowDeselect={false}
          />
          <TextInput
            aria-label="Topic filter"
            classNames={{ input: 'mono' }}
            value={rule.filter}
            onChange={(event) => change(at, { filter: event.currentTarget.value })}
            error={filterProblem(rule.filter)}
            className={classes.filter}
          />
          {!isReadOnly && (
            <Group gap={2} wrap="nowrap" h={36}>
              <ActionIcon
                variant="subtle"
                color="gray"
                aria-label={`Move rule ${at + 1} up`}
                disabled={at === 0}
                onClick={() => raise(at)}
              >
                <IconArrowUp size={16} />
              </ActionIcon>
              <ActionIcon
                variant="subtle"
                color="gray"
                aria-label={`Remove rule ${at + 1}`}
                onClick={() => remove(at)}
              >
                <IconX size={16} />
              </ActionIcon>
            </Group>
          )}
          {rule.effect === 'allow' && (
            <Group gap="md" className={classes.more}>
              <Select
                aria-label="Highest QoS"
                size="xs"
                w={130}
                data={QOS}
                value={String(rule.qos_max ?? 2)}
                onChange={(qos) => change(at, { qos_max: Number(qos) })}
                allowDeselect={false}
              />
              {rule.action !== 'subscribe' && (
                <Checkbox
                  size="xs"
                  label="with RETAIN"
                  checked={rule.retain ?? true}
                  onChange={(event) => change(at, { retain: event.currentTarget.checked })}
                />
              )}
            </Group>
          )}
        </fieldset>
      ))}
      {rules.length === 0 && (
        <Text size="sm" c="dimmed">
          No rule yet.
        </Text>
      )}
      {!isReadOnly && (
        <Button
          size="xs"
          variant="default"
          leftSection={<IconPlus size={14} />}
          onClick={() => onChange([...rules, NEW])}
          style={{ alignSelf: 'flex-start' }}
        >
          Add rule
        </Button>
      )}
      <Text size="xs" c="dimmed">
        The first rule that matches decides. In a filter %c stands for the client id and %u for the user. A
        client without any rule may do everything. With rules, it may only do what they allow.
      </Text>
    </Stack>
  )
}

export const rulesAreRight = (rules: Rule[]) => rules.every(({ filter }) => filterProblem(filter) === null)
