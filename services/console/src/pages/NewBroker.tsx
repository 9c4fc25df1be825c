import { Button, Group, Select, Stack, TextInput } from '@mantine/core'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { api, body } from '../api/client'
import { useOnce } from '../api/once'
import { Problem } from '../api/problem'
import { may, useMe } from '../api/session'
import { Page, Panel } from '../ui/Page'
import { Empty, Failure } from '../ui/State'
import { Terms } from './newBroker/Terms'

interface Wanted {
  organisation: string
  name: string
}

const createBroker = ({ organisation, name }: Wanted, key: string) =>
  body(
    api.POST('/organisations/{organisation}/brokers', {
      params: { path: { organisation }, header: { 'Idempotency-Key': key } },
      body: { display_name: name },
    }),
  )

/** Creates a broker. Everything but its name has a default. */
export function NewBroker() {
  const me = useMe()
  const client = useQueryClient()
  const navigate = useNavigate()
  const places = me.organisations.filter(({ role }) => may(role, 'brokers:write'))
  // Anybody may invite a person into an organisation with the name of another one, so none of several is chosen for the person.
  const [organisation, setOrganisation] = useState((places.length === 1 && places[0]?.id) || '')
  const [name, setName] = useState('My first broker')
  const create = useOnce(createBroker)
  const creating = useMutation({
    mutationFn: () => create({ organisation, name }),
    onSuccess: async (broker) => {
      await client.invalidateQueries({ queryKey: ['brokers'] })
      // Back leads to the brokers, and not to a form that would create one more.
      await navigate({ to: '/b/$broker/connect', params: { broker: broker.name }, replace: true })
    },
  })
  if (places.length === 0) {
    return (
      <Page title="Create broker">
        <Empty title="Your role does not allow this">
          Ask an owner of the organisation to make you an operator, or to create the broker.
        </Empty>
      </Page>
    )
  }
  const fields = creating.error instanceof Problem ? creating.error.fields : {}
  return (
    <Page title="Create broker" lead="It is ready at once. An idle broker costs nothing." isNarrow>
      <Panel>
        <form
          onSubmit={(event) => {
            event.preventDefault()
            creating.mutate()
          }}
        >
          <Stack gap="md">
            <TextInput
              label="Name"
              description="A name for people, such as Plant 7. The service chooses the host name."
              value={name}
              onChange={(event) => setName(event.currentTarget.value)}
              error={fields.display_name}
              maxLength={100}
              required
              withAsterisk={false}
              data-autofocus
            />
            {places.length > 1 && (
              <Select
                label="Organisation"
                description="Its owners have all rights at the broker."
                placeholder="Choose one"
                data={places.map(({ id, name }) => ({
                  value: id,
                  label: places.some((other) => other.id !== id && other.name === name)
                    ? `${name} (id …${id.slice(-6)})`
                    : name,
                }))}
                value={organisation || null}
                onChange={(value) => setOrganisation(value ?? organisation)}
                allowDeselect={false}
              />
            )}
            {creating.isError && !fields.display_name && <Failure error={creating.error} />}
            <Group gap="xs">
              <Button type="submit" loading={creating.isPending} disabled={organisation === ''}>
                Create broker
              </Button>
              <Button component={Link} to="/" search={{ all: true } as never} variant="default">
                Cancel
              </Button>
            </Group>
          </Stack>
        </form>
      </Panel>
      {organisation !== '' && <Terms organisation={organisation} />}
    </Page>
  )
}
