import { useState } from 'react'
import { type NamedRows, putNamed } from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import { ruleText } from '../../../lib/rules'
import { Form } from '../../../ui/Form'
import { CredentialsOf } from '../../../ui/Losses'
import type { Column } from '../../../ui/Rows'
import { NamedList } from './NamedList'
import { NameInput } from './NameInput'
import { RuleEditor, rulesAreRight } from './RuleEditor'

type Group = NamedRows['groups']

const columns: Column<Group>[] = [
  { key: 'name', header: 'Name', width: 'minmax(0, 1fr)', cell: ({ name }) => name },
  {
    key: 'rules',
    header: 'Rules',
    width: 'minmax(0, 3fr)',
    cell: ({ rules = [] }) => <span className="mono">{rules.map(ruleText).join('; ')}</span>,
  },
]

/** Rules that several credentials share. */
export function Groups() {
  return (
    <NamedList
      kind="groups"
      title="Groups"
      lead="Rules that credentials, tokens and certificates share."
      noun="group"
      empty={{
        title: 'No group yet',
        text: 'With a group, many devices share one set of rules.',
      }}
      columns={columns}
      loses={({ name, rules = [] }) => (
        <>
          Its rules ({rules.length}) are lost. <CredentialsOf group={name} /> in this group: their clients are
          refused until another group is chosen.
        </>
      )}
      settingsOf={({ rules }) => ({ rules })}
      form={(row, onDone) => <GroupForm row={row} onDone={onDone} />}
    />
  )
}

function GroupForm({ row, onDone }: { row: Group | undefined; onDone: () => void }) {
  const { path } = useBroker()
  const [before] = useState(row)
  const [name, setName] = useState(row?.name ?? '')
  const [rules, setRules] = useState(row?.rules ?? [])
  return (
    <Form
      verb="Save group"
      isDisabled={!rulesAreRight(rules)}
      act={(overwrites) => putNamed(path, 'groups', name, { rules }, before, overwrites)}
      onDone={onDone}
    >
      {(wrong) => (
        <>
          {!row && <NameInput value={name} onChange={setName} error={wrong.name} placeholder="pumps" />}
          <RuleEditor rules={rules} onChange={setRules} />
        </>
      )}
    </Form>
  )
}
