import { Button, Group, PasswordInput, Stack, Text, TextInput } from '@mantine/core'
import { type FormEvent, useState } from 'react'
import type { Login } from './client'

/** Asks for a credential of the broker, when it lets nobody in without one. */
export function LoginForm({ onLogin, why }: { onLogin: (login: Login) => void; why: string }) {
  const [username, setUsername] = useState('')
  const [password, setPassword] = useState('')
  const submit = (event: FormEvent) => {
    event.preventDefault()
    onLogin({ username, password })
  }
  return (
    <form onSubmit={submit}>
      <Stack gap="sm" p="lg" maw={420}>
        <Text size="sm">
          {why} Connect this page with a credential of the broker. It stays in this page alone.
        </Text>
        <TextInput
          label="User"
          autoComplete="off"
          required
          withAsterisk={false}
          value={username}
          onChange={(event) => setUsername(event.currentTarget.value)}
        />
        <PasswordInput
          label="Password"
          autoComplete="off"
          required
          withAsterisk={false}
          value={password}
          onChange={(event) => setPassword(event.currentTarget.value)}
        />
        <Group>
          <Button type="submit">Connect this page</Button>
        </Group>
      </Stack>
    </form>
  )
}
