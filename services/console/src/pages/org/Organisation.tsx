import { useNavigate, useSearch } from '@tanstack/react-router'
import { useOrganisation } from '../../api/brokers'
import { Page } from '../../ui/Page'
import { TabPanels } from '../../ui/TabPanels'
import { Audit } from './Audit'
import { Export } from './Export'
import { Invitations } from './Invitations'
import { Members } from './Members'
import { OrgSettings } from './OrgSettings'
import { OrgUsage } from './OrgUsage'
import { Tokens } from './Tokens'

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
    >
      <TabPanels tabs={TABS} value={tab} onChange={(tab) => void navigate({ search: { tab } })} />
    </Page>
  )
}
