import { Alert, Anchor, Button, Stack, Text } from '@mantine/core'
import type { UseMutationResult } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { type FormEvent, useState } from 'react'
import { Problem } from '../api/problem'
import { Card } from '../shell/Card'
import { PasswordInput } from '../ui/PasswordInput'
import { Failure } from '../ui/State'

/** Where another link comes from. */
type NewLink = { to: '/sign-up' | '/forgot-password'; label: string }

/** Shown when the token of the link is missing: it is in memory only, so a reload loses it. */
export function NeedsLink({ lasts, newLink }: { lasts: string; newLink: NewLink }) {
  return (
    <Card title="Open the link again" lead="This page needs the link from your mail or your operator.">
      <Stack gap="md" mt="lg">
        <Text size="sm">
          A reload removes the link from this page. Open it again from where it was sent to you: it works
          once, within {lasts}.
        </Text>
        <Button component={Link} to={newLink.to} variant="default">
          {newLink.label}
        </Button>
      </Stack>
    </Card>
  )
}

/** Asks for a password, which the caller sends with the token of the link. */
export function LinkedPassword({
  title,
  lead,
  field,
  submit,
  newLink,
  sending,
}: {
  title: string
  lead: string
  field: { label: string; description?: string; autoComplete: string }
  submit: string
  newLink: NewLink
  sending: UseMutationResult<unknown, Error, string>
}) {
  const [password, setPassword] = useState('')
  const send = (event: FormEvent) => {
    event.preventDefault()
    sending.mutate(password)
  }
  const fields = sending.error instanceof Problem ? sending.error.fields : {}
  return (
    <Card title={title} lead={lead}>
      <form onSubmit={send}>
        <Stack gap="md" mt="lg">
          <PasswordInput
            {...field}
            name="password"
            required
            withAsterisk={false}
            value={password}
            onChange={(event) => setPassword(event.currentTarget.value)}
            error={fields.password}
          />
          {fields.token && (
            <Alert color="red" variant="light" role="alert">
              {fields.token}
            </Alert>
          )}
          {sending.isError && !fields.password && !fields.token && (
            <Failure error={sending.error} isOwnAccount />
          )}
          <Button type="submit" loading={sending.isPending} fullWidth>
            {submit}
          </Button>
          {sending.isError && (
            <Anchor component={Link} to={newLink.to} size="sm">
              {newLink.label}
            </Anchor>
          )}
        </Stack>
      </form>
    </Card>
  )
}
