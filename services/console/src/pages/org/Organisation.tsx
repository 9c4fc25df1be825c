import { Tabs } from '@mantine/core'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useOrganisation } from '../../api/brokers'
import { Page } from '../../ui/Page'
import { TabList } from '../../ui/TabList'
import { Audit } from './Audit'
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
  { value: 'settings', label: 'Settings', part: OrgSettings },
]

/** People, programs and money of an organisation. */
export function Organisation() {
  const { name, role } = useOrganisation()
  const { tab } = useSearch({ from: '/signed-in/org/$organisation' })
  const navigate = useNavigate({ from: '/org/$organisation' })
  const shown = TABS.find(({ value }) => value === tab) ?? TABS[0]
  return (
    <Page
      title={name}
      lead={`Organisation. You are ${role === 'viewer' ? 'a viewer: you see everything and change nothing' : `its ${role}`}.`}
    >
      <Tabs
        value={shown?.value}
        onChange={(value) => void navigate({ search: { tab: value ?? undefined } })}
        keepMounted={false}
      >
        <TabList tabs={TABS} value={shown?.value} />
        {TABS.map(({ value, part: Part }) => (
          <Tabs.Panel key={value} value={value}>
            <Part />
          </Tabs.Panel>
        ))}
      </Tabs>
    </Page>
  )
}
