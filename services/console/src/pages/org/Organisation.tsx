import { Button, Select } from '@mantine/core'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { useOrganisation } from '../../api/brokers'
import { useMe } from '../../api/session'
import { Page } from '../../ui/Page'
import { TabPanels } from '../../ui/TabPanels'
import { Audit } from './Audit'
import { Export } from './Export'
import { Invitations } from './Invitations'
import { Members } from './Members'
import { OrgSettings } from './OrgSettings'
import { OrgUsage } from './OrgUsage'
import { Tokens } from './Tokens'

/** The address names a tab by its value; TabPanels shows the first one for an unknown value. */
const TABS = [
  { value: 'members', label: 'Members', part: Members },
  { value: 'invitations', label: 'Invitations', part: Invitations },
  { value: 'tokens', label: 'API tokens', part: Tokens },
  { value: 'audit', label: 'Audit log', part: Audit },
  { value: 'usage', label: 'Usage', part: OrgUsage },
  { value: 'export', label: 'Export', part: Export },
  { value: 'settings', label: 'Settings', part: OrgSettings },
]

/** People, programs and money of an organisation. */
export function Organisation() {
  const { name, role } = useOrganisation()
  const { tab } = useSearch({ from: '/signed-in/org/$organisation' })
  const navigate = useNavigate({ from: '/org/$organisation' })
  return (
    <Page
      title={name}
      lead={`Organisation. You are ${role === 'viewer' ? 'a viewer: you see everything and change nothing' : `its ${role}`}.`}
      actions={<Others />}
    >
      <TabPanels tabs={TABS} value={tab} onChange={(tab) => void navigate({ search: { tab } })} />
    </Page>
  )
}

/** The way to the person's other organisations, and to a new one. */
function Others() {
  const { id } = useOrganisation()
  const { organisations } = useMe()
  const navigate = useNavigate()
  return (
    <>
      {organisations.length > 1 && (
        <Select
          aria-label="Organisation"
          data={organisations.map(({ id: value, name: label }) => ({ value, label }))}
          value={id}
          onChange={(organisation) =>
            organisation && void navigate({ to: '/org/$organisation', params: { organisation } })
          }
          allowDeselect={false}
          w={180}
        />
      )}
      <Button component={Link} to="/org/new" variant="default">
        Create organisation
      </Button>
    </>
  )
}
