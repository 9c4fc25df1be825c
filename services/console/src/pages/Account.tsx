import { Stack, TextInput, useMantineColorScheme } from '@mantine/core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { api, body } from '../api/client'
import { meQuery, useMe, waysQuery } from '../api/session'
import { absolute } from '../lib/format'
import { Choice } from '../ui/Choice'
import { Form } from '../ui/Form'
import { done } from '../ui/notify'
import { Page, Panel } from '../ui/Page'
import { PasswordInput } from '../ui/PasswordInput'
import { Facts } from '../ui/Stat'
import { Address } from './account/Address'
import { DeleteAccount } from './account/DeleteAccount'
import { OwnAudit } from './account/OwnAudit'
import { Passkeys } from './account/Passkeys'
import { SecondFactor } from './account/SecondFactor'
import { Identities } from './Identities'
import { WebSessions } from './WebSessions'

/** The account of the person that is signed in. */
export function Account() {
  const { user } = useMe()
  const { data: ways } = useQuery(waysQuery)
  return (
    <Page title="Account" isNarrow>
      <Panel title="You">
        <Stack gap="md">
          <Facts
            rows={[
              ['E-mail address', user.email ?? 'none: you own this machine'],
              ['Account created', absolute(user.created_at_ms)],
              ['Sign in with', signInText(user.email != null, ways?.provider?.name)],
            ]}
          />
          <NameForm />
        </Stack>
      </Panel>
      {user.email && <PasswordPanel />}
      {user.email && <Passkeys />}
      {user.email && <SecondFactor />}
      {user.email && ways && <Address isMailed={ways.password_reset} />}
      <Identities />
      <WebSessions />
      <OwnAudit />
      <Panel title="Theme">
        <SchemeSwitch />
      </Panel>
      {user.email && <DeleteAccount email={user.email} />}
    </Page>
  )
}

function signInText(hasPassword: boolean, provider: string | undefined) {
  if (!hasPassword) return 'the link that the server prints at startup'
  return provider ? `password or ${provider}` : 'password'
}

function NameForm() {
  const { user } = useMe()
  const client = useQueryClient()
  const [name, setName] = useState(user.name)
  return (
    <Form
      verb="Change name"
      isDisabled={name === user.name}
      act={() => body(api.PATCH('/me', { body: { name } }))}
      onDone={() => {
        done('Your name was changed.')
        void client.invalidateQueries({ queryKey: meQuery.queryKey })
      }}
    >
      {(wrong) => (
        <TextInput
          label="Name"
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
          error={wrong.name}
          maxLength={100}
          autoComplete="name"
        />
      )}
    </Form>
  )
}

function PasswordPanel() {
  const [current, setCurrent] = useState('')
  const [next, setNext] = useState('')
  return (
    <Panel title="Password" lead="A new password signs you out everywhere else.">
      <Form
        verb="Change password"
        isDisabled={current === '' || next === ''}
        act={() => body(api.POST('/me/password', { body: { current, new: next } }))}
        onDone={() => {
          setCurrent('')
          setNext('')
          done('Your password was changed.')
        }}
      >
        {(wrong) => (
          <>
            <PasswordInput
              label="Current password"
              autoComplete="current-password"
              value={current}
              onChange={(event) => setCurrent(event.currentTarget.value)}
              error={wrong.current}
            />
            <PasswordInput
              label="New password"
              description="At least 15 characters"
              autoComplete="new-password"
              value={next}
              onChange={(event) => setNext(event.currentTarget.value)}
              error={wrong.new}
            />
          </>
        )}
      </Form>
    </Panel>
  )
}

function SchemeSwitch() {
  const { colorScheme, setColorScheme } = useMantineColorScheme()
  return (
    <Choice
      label="Theme"
      data={[
        { value: 'auto', label: 'System' },
        { value: 'light', label: 'Light' },
        { value: 'dark', label: 'Dark' },
      ]}
      value={colorScheme}
      onChange={(value) => setColorScheme(value as 'auto' | 'light' | 'dark')}
    />
  )
}
