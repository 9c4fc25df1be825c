import { Button, Stack } from '@mantine/core'
import { useMutation } from '@tanstack/react-query'
import { type FormEvent, useState } from 'react'
import { Problem } from '../api/problem'
import { Card } from '../shell/Card'
import { PasswordInput } from '../ui/PasswordInput'
import { Failure } from '../ui/State'
import { enter } from './queries'

/** Asks for the operators' token. */
export function Token() {
  const [typed, setTyped] = useState('')
  const entering = useMutation({ mutationFn: () => enter(typed.trim()) })
  const submit = (event: FormEvent) => {
    event.preventDefault()
    entering.mutate()
  }
  const isWrong = entering.error instanceof Problem && entering.error.status === 401
  return (
    <Card
      title="Operators"
      lead="These pages ask for the token in the file that operator_token_file names. The tab forgets it when it is closed."
    >
      <form onSubmit={submit}>
        <Stack gap="md" mt="lg">
          <PasswordInput
            label="Operator token"
            name="token"
            autoComplete="off"
            required
            withAsterisk={false}
            value={typed}
            onChange={(event) => setTyped(event.currentTarget.value)}
            error={isWrong ? 'The server does not accept this token.' : undefined}
          />
          {entering.isError && !isWrong && <Failure error={entering.error} />}
          <Button type="submit" loading={entering.isPending} fullWidth>
            Open
          </Button>
        </Stack>
      </form>
    </Card>
  )
}
