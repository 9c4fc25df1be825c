import { useQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { type AccessSettings, accessQuery, changeAccess, ownSettings } from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import type { Tagged } from '../../../api/client'
import { Form } from '../../../ui/Form'
import { Held } from '../../../ui/Held'
import { Panel } from '../../../ui/Page'
import { Loaded } from '../../../ui/State'
import { savedUndoable } from '../../../ui/undo'
import { useAccessChanged, useOwnAccessQuestion } from './BySettings'
import { RuleEditor, rulesAreRight } from './RuleEditor'

/** Rules of all clients of the broker. */
export function BrokerRules() {
  const { path } = useBroker()
  const query = useQuery(accessQuery(path))
  return (
    <Panel
      title="Rules of all clients"
      lead="The server checks them last, after the rules of the token, the credential and its group."
    >
      <Loaded query={query}>
        {(latest) => (
          <Held latest={latest}>
            {(access, setTouched) => (
              <RulesForm key={JSON.stringify(access)} access={access} onTouch={setTouched} />
            )}
          </Held>
        )}
      </Loaded>
    </Panel>
  )
}

export interface AccessFormProps {
  access: Tagged<AccessSettings>
  onTouch: (isTouched: boolean) => void
}

function RulesForm({ access, onTouch }: AccessFormProps) {
  const { path, can } = useBroker()
  const reload = useAccessChanged()
  const own = ownSettings(access.value)
  const stored = own.rules ?? []
  const [rules, setRules] = useState(stored)
  const asks = useOwnAccessQuestion({ ...own, rules })
  const isChanged = JSON.stringify(rules) !== JSON.stringify(stored)
  useEffect(() => onTouch(isChanged), [isChanged, onTouch])
  if (!can('access:write')) return <RuleEditor rules={rules} onChange={setRules} isReadOnly />
  return (
    <Form
      verb="Save rules"
      isDisabled={!rulesAreRight(rules) || !isChanged}
      asks={asks}
      act={(overwrites) => changeAccess(path, own, { rules }, overwrites)}
      onDone={(change) => {
        savedUndoable('The rules were saved.', change.inForceMs, {
          act: () => changeAccess(path, change.value, { rules: stored }),
          said: 'The rules are as they were.',
          onDone: reload,
        })
        onTouch(false)
        reload()
      }}
    >
      {() => <RuleEditor rules={rules} onChange={setRules} />}
    </Form>
  )
}
