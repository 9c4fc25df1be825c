import { Anchor, Button, TextInput } from '@mantine/core'
import { useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { brokersQuery, deleteBroker, useOrganisation } from '../../api/brokers'
import { deleteOrganisation, rename, renameBack } from '../../api/organisation'
import { Problem } from '../../api/problem'
import { plural } from '../../lib/format'
import { Confirm } from '../../ui/Confirm'
import { Form } from '../../ui/Form'
import { OrganisationLosses } from '../../ui/Losses'
import { done } from '../../ui/notify'
import { Panel } from '../../ui/Page'
import { Empty } from '../../ui/State'
import { undoable } from '../../ui/undo'

export function OrgSettings() {
  const { can } = useOrganisation()
  if (!can('organisation:write')) {
    return (
      <Panel>
        <Empty title="Only owners change the organisation">
          Ask one of them. The tab Members shows each member's role.
        </Empty>
      </Panel>
    )
  }
  return (
    <>
      <Rename />
      <Delete />
    </>
  )
}

function Rename() {
  const { id, name: now } = useOrganisation()
  const client = useQueryClient()
  const [name, setName] = useState(now)
  return (
    <Panel title="Name">
      <div style={{ maxWidth: 420 }}>
        <Form
          verb="Rename"
          isDisabled={name === now}
          act={() => rename(id, name)}
          onDone={(saved) => {
            const reload = () => void client.invalidateQueries({ queryKey: ['me'] })
            undoable('The organisation was renamed.', {
              act: () => renameBack(id, saved.name, now),
              said: `The organisation is called ${now} again.`,
              onDone: () => {
                setName(now)
                reload()
              },
            })
            reload()
          }}
        >
          {(wrong) => (
            <TextInput
              aria-label="Name of the organisation"
              value={name}
              onChange={(event) => setName(event.currentTarget.value)}
              error={wrong.name}
              maxLength={100}
            />
          )}
        </Form>
      </div>
    </Panel>
  )
}

/** The error of a deletion that failed after some brokers were deleted. */
const partly = (error: Problem, gone: number, all: number) =>
  new Problem(
    {
      status: error.status,
      detail: `${gone} of ${plural(all, 'broker')} ${gone === 1 ? 'is' : 'are'} deleted, and the organisation is still there: ${error.message}`,
    },
    error.requestId,
    error.retryAfterS,
  )

function Delete() {
  const { id, name } = useOrganisation()
  const client = useQueryClient()
  const navigate = useNavigate()
  return (
    <Panel
      title="Delete"
      lead={
        <>
          All brokers of the organisation are lost with their sessions and messages. This cannot be undone.{' '}
          <Anchor
            component={Link}
            to="/org/$organisation"
            params={{ organisation: id } as never}
            search={{ tab: 'export' } as never}
            inherit
          >
            Export it first
          </Anchor>
          .
        </>
      }
    >
      <Confirm
        verb="Delete organisation"
        title={`Delete ${name}?`}
        name={name}
        loses={<OrganisationLosses id={id} />}
        act={async () => {
          // The API deletes no organisation that has brokers.
          const brokers = await client.fetchQuery({ ...brokersQuery, staleTime: 0 })
          const own = brokers.filter(({ organisation }) => organisation === id)
          let gone = 0
          try {
            for (const { name } of own) {
              await deleteBroker({ organisation: id, broker: name })
              gone += 1
            }
            await deleteOrganisation(id)
          } catch (error) {
            void client.invalidateQueries({ queryKey: ['brokers'] })
            throw gone > 0 && error instanceof Problem ? partly(error, gone, own.length) : error
          }
        }}
        onDone={async () => {
          done(`${name} was deleted.`)
          // This page ends with the organisation.
          await navigate({ to: '/', search: { all: true } })
          await client.invalidateQueries()
        }}
      >
        {(open) => (
          <Button color="red" variant="light" onClick={open}>
            Delete organisation
          </Button>
        )}
      </Confirm>
    </Panel>
  )
}
