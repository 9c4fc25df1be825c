import { ActionIcon, Button, Group, Input, Stack, Switch, Text, TextInput } from '@mantine/core'
import { IconPlus, IconX } from '@tabler/icons-react'
import { useEffect, useRef, useState } from 'react'
import type { Draft } from './draft'

interface PublishPropertiesProps {
  draft: Draft
  onChange: (change: Partial<Draft>) => void
  wrong: Partial<Record<keyof Draft, string>>
}

/** The properties of a message in MQTT 5.0. */
export function PublishProperties({ draft, onChange, wrong }: PublishPropertiesProps) {
  const text = (name: 'contentType' | 'responseTopic' | 'correlationData' | 'expiry') => ({
    value: draft[name],
    onChange: (event: { currentTarget: { value: string } }) =>
      onChange({ [name]: event.currentTarget.value }),
    error: wrong[name],
    size: 'xs' as const,
  })
  return (
    <Stack gap="sm">
      <TextInput
        label="Content type"
        placeholder={draft.kind === 'json' ? 'application/json' : 'text/plain'}
        {...text('contentType')}
      />
      <TextInput label="Response topic" placeholder="plant/1/answer" {...text('responseTopic')} />
      <TextInput
        label="Correlation data"
        description="Text, or bytes such as 0x6f37"
        {...text('correlationData')}
      />
      <TextInput
        label="Message expiry, seconds"
        placeholder="never"
        inputMode="numeric"
        {...text('expiry')}
      />
      <Switch
        label="Mark the payload as UTF-8 text"
        size="xs"
        checked={draft.isMarkedText && draft.kind !== 'hex'}
        disabled={draft.kind === 'hex'}
        onChange={(event) => onChange({ isMarkedText: event.currentTarget.checked })}
      />
      <UserProperties draft={draft} onChange={onChange} error={wrong.userProperties} />
    </Stack>
  )
}

interface UserPropertiesProps extends Omit<PublishPropertiesProps, 'wrong'> {
  error: string | undefined
}

function UserProperties({ draft, onChange, error }: UserPropertiesProps) {
  const { userProperties: all } = draft
  const [isAdded, setAdded] = useState(false)
  const last = useRef<HTMLInputElement>(null)
  // A new field stands before the button, where a keyboard would not look for it.
  useEffect(() => {
    if (!isAdded) return
    setAdded(false)
    last.current?.focus()
  }, [isAdded])
  const change = (at: number, to: readonly [string, string] | null) =>
    onChange({
      userProperties: all.flatMap((one, index) => (index !== at ? [one] : to === null ? [] : [to])),
    })
  return (
    <Stack gap={6}>
      <Text size="xs" fw={500}>
        User properties
      </Text>
      {all.map(([name, value], at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a property has nothing but its place, as names may be equal
        <Group key={at} gap={6} wrap="nowrap">
          <TextInput
            aria-label={`Name of user property ${at + 1}`}
            ref={at === all.length - 1 ? last : undefined}
            placeholder="name"
            size="xs"
            value={name}
            onChange={(event) => change(at, [event.currentTarget.value, value])}
          />
          <TextInput
            aria-label={`Value of user property ${at + 1}`}
            placeholder="value"
            size="xs"
            value={value}
            onChange={(event) => change(at, [name, event.currentTarget.value])}
          />
          <ActionIcon
            variant="subtle"
            color="gray"
            aria-label={`Remove user property ${at + 1}`}
            onClick={() => change(at, null)}
          >
            <IconX size={16} />
          </ActionIcon>
        </Group>
      ))}
      {error && <Input.Error role="alert">{error}</Input.Error>}
      <Button
        size="compact-xs"
        variant="subtle"
        color="gray"
        w="fit-content"
        leftSection={<IconPlus size={14} />}
        onClick={() => {
          onChange({ userProperties: [...all, ['', '']] })
          setAdded(true)
        }}
      >
        Add user property
      </Button>
    </Stack>
  )
}
