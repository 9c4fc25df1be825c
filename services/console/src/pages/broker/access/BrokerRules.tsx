import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { type AccessSettings, accessQuery, ownSettings, setAccess } from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import type { Tagged } from '../../../api/client'
import { Form } from '../../../ui/Form'
import { saved } from '../../../ui/notify'
import { Panel } from '../../../ui/Page'
import { Loaded } from '../../../ui/State'
import { useAccessChanged, useOwnAccessQuestion } from './BySettings'
import { RuleEditor, rulesAreRight } from './RuleEditor'

/** Rules of all clients of the broker. */
export function BrokerRules() {
  const { path } = useBroker()
  const query = useQuery(accessQuery(path))
  return (
    <Panel
      title="Rules of all clients"
      lead="They come last: after those of the token, the credential and its group."
    >
      <Loaded query={query}>{(access) => <RulesForm key={access.etag} access={access} />}</Loaded>
    </Panel>
  )
}

function RulesForm({ access }: { access: Tagged<AccessSettings> }) {
  const { path, can } = useBroker()
  const again = useAccessChanged()
  const own = ownSettings(access.value)
  const stored = own.rules ?? []
  const [rules, setRules] = useState(stored)
  const asks = useOwnAccessQuestion({ ...own, rules })
  if (!can('access:write')) return <RuleEditor rules={rules} onChange={setRules} isReadOnly />
  return (
    <Form
      verb="Save rules"
      isDisabled={!rulesAreRight(rules) || JSON.stringify(rules) === JSON.stringify(stored)}
      asks={asks}
      act={() => setAccess(path, { ...own, rules }, access.etag)}
      onDone={(change) => {
        saved('The rules were saved.', change.inForceMs)
        again()
      }}
    >
      {() => <RuleEditor rules={rules} onChange={setRules} />}
    </Form>
  )
}
