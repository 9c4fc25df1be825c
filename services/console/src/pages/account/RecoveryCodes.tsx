import { Button, Group, Stack, Text } from '@mantine/core'
import { Secret } from '../../ui/Code'

/** Recovery codes, which are shown once. */
export function RecoveryCodes({ codes, onStored }: { codes: string[]; onStored: () => void }) {
  return (
    <Stack gap="md">
      <Text size="sm">
        Each of these codes replaces your second factor once. Store them where you find them when your device
        is lost, such as in a password manager. Earlier codes no longer work.
      </Text>
      <Secret name="Recovery codes" value={codes.join('\n')} fileName="millrace-recovery-codes.txt" />
      <Group>
        <Button onClick={onStored}>I have stored them</Button>
      </Group>
    </Stack>
  )
}
