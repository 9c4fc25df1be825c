import { TextInput } from '@mantine/core'
import { useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { api, body } from '../../api/client'
import { useOnce } from '../../api/once'
import { useMe } from '../../api/session'
import { Form } from '../../ui/Form'
import { Page, Panel } from '../../ui/Page'

const NONE = 'You belong to no organisation. Create one, or ask a member of one for an invitation.'
const ANOTHER = 'It has brokers, members and a bill of its own. You are its owner.'

const createOrganisation = (wanted: { name: string }, key: string) =>
  body(api.POST('/organisations', { params: { header: { 'Idempotency-Key': key } }, body: wanted }))

/** Creates an organisation: the first of a person who belongs to none, or one more. */
export function NewOrganisation() {
  const { organisations } = useMe()
  const client = useQueryClient()
  const navigate = useNavigate()
  const [name, setName] = useState('')
  const create = useOnce(createOrganisation)
  return (
    <Page title="Create organisation" lead={organisations.length === 0 ? NONE : ANOTHER} isNarrow>
      <Panel>
        <Form
          verb="Create organisation"
          act={() => create({ name })}
          onDone={async ({ id }) => {
            await client.invalidateQueries()
            await navigate({ to: '/org/$organisation', params: { organisation: id } })
          }}
        >
          {(wrong) => (
            <TextInput
              label="Name"
              value={name}
              onChange={(event) => setName(event.currentTarget.value)}
              error={wrong.name}
              maxLength={100}
              required
              withAsterisk={false}
            />
          )}
        </Form>
      </Panel>
    </Page>
  )
}
