import { TextInput } from '@mantine/core'
import { useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { api, body, idempotencyKey } from '../../api/client'
import { Form } from '../../ui/Form'
import { Page, Panel } from '../../ui/Page'

/** The page of a person who belongs to no organisation: it creates one. */
export function NoOrganisation() {
  const client = useQueryClient()
  const navigate = useNavigate()
  const [name, setName] = useState('')
  const [key] = useState(idempotencyKey)
  return (
    <Page
      title="Organisation"
      lead="You belong to no organisation. Create one, or ask a member of one for an invitation."
      isNarrow
    >
      <Panel>
        <Form
          verb="Create organisation"
          act={() =>
            body(
              api.POST('/organisations', { params: { header: { 'Idempotency-Key': key } }, body: { name } }),
            )
          }
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
