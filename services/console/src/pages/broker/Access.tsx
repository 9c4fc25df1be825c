import { useNavigate, useSearch } from '@tanstack/react-router'
import { Page } from '../../ui/Page'
import { TabPanels } from '../../ui/TabPanels'
import { Bans } from './access/Bans'
import { BrokerRules } from './access/BrokerRules'
import { BySettings } from './access/BySettings'
import { Certificates } from './access/Certificates'
import { ClaimTokens } from './access/ClaimTokens'
import { Credentials } from './access/Credentials'
import { Groups } from './access/Groups'
import { Issuers } from './access/Issuers'
import { Methods } from './access/Methods'
import { Tester } from './access/Tester'

function CredentialsAndTokens() {
  return (
    <>
      <Credentials />
      <ClaimTokens />
    </>
  )
}

const TABS = [
  { value: 'credentials', label: 'Credentials', part: CredentialsAndTokens },
  { value: 'groups', label: 'Groups', part: Groups },
  { value: 'rules', label: 'Rules', part: BrokerRules },
  { value: 'test', label: 'Tester', part: Tester },
  { value: 'certificates', label: 'Certificates', part: Certificates },
  { value: 'tokens', label: 'Tokens (JWT)', part: Issuers },
  { value: 'bans', label: 'Bans', part: Bans },
  { value: 'methods', label: 'Authentication', part: Methods },
]

/** Access of clients: methods, credentials, groups and rules. */
export function Access() {
  const { tab } = useSearch({ from: '/signed-in/b/$broker/access' })
  const navigate = useNavigate({ from: '/b/$broker/access' })
  return (
    <Page
      title="Access"
      lead="How clients authenticate with this broker, and what they may do. Changes take effect within half a second."
    >
      <BySettings />
      <TabPanels tabs={TABS} value={tab} onChange={(tab) => void navigate({ search: { tab } })} />
    </Page>
  )
}
