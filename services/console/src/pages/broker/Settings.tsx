import { Button, NumberInput, Stack, Text, TextInput } from '@mantine/core'
import { useQueryClient } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { type Broker, useBroker } from '../../api/brokers'
import { api, body, etagOf, tagged } from '../../api/client'
import { changed } from '../../api/inForce'
import { absolute, count } from '../../lib/format'
import { LIMITS, type LimitName } from '../../lib/limits'
import { Confirm } from '../../ui/Confirm'
import { Form } from '../../ui/Form'
import { BrokerLosses, ConnectedClients } from '../../ui/Losses'
import { done } from '../../ui/notify'
import { Page, Panel } from '../../ui/Page'
import { Facts } from '../../ui/Stat'
import ui from '../../ui/ui.module.css'
import { savedUndoable, undoable } from '../../ui/undo'
import { BySettings } from './access/BySettings'

const AT = '/organisations/{organisation}/brokers/{broker}'

/** Name, limits, and the end of a broker. */
export function Settings() {
  const { broker, can } = useBroker()
  const canWrite = can('brokers:write')
  return (
    <Page title="Settings">
      <BySettings />
      <Panel title="Broker">
        <Facts
          rows={[
            [
              'Name in the region',
              <span key="name" className="mono">
                {broker.name}
              </span>,
            ],
            // The broker of the server's settings has no creation time (0).
            ['Created', broker.created_at_ms > 0 ? absolute(broker.created_at_ms) : 'with the server itself'],
          ]}
        />
        <div style={{ marginTop: 16, maxWidth: 420 }}>
          <NameForm canWrite={canWrite} />
        </div>
      </Panel>
      <LimitsPanel canWrite={canWrite} />
      {canWrite && <Suspend />}
      {canWrite && <Delete />}
    </Page>
  )
}

type Changes = Partial<Pick<Broker, 'display_name' | 'limits'>>

/**
 * Changes the broker as a form has read it in `before`. If another tab or person has changed the same fields since, the change is
 * refused, and the form asks whether it `overwrites` theirs.
 */
function useChange() {
  const { path } = useBroker()
  const client = useQueryClient()
  const change = async (before: Broker, to: Changes, overwrites: boolean) => {
    const asked = tagged(api.GET(AT, { params: { path } }))
    const etag = overwrites
      ? (await asked).etag
      : await etagOf(asked, before, Object.keys(to) as (keyof Changes)[])
    return changed(api.PATCH(AT, { params: { path, header: { 'If-Match': etag } }, body: to }))
  }
  const reload = () => {
    void client.invalidateQueries({ queryKey: ['broker', path.broker] })
    void client.invalidateQueries({ queryKey: ['brokers'] })
  }
  return { change, reload }
}

function NameForm({ canWrite }: { canWrite: boolean }) {
  const { broker } = useBroker()
  const { change, reload } = useChange()
  const [before, setBefore] = useState<Broker>(broker)
  const [name, setName] = useState(broker.display_name)
  if (!canWrite) return null
  return (
    <Form
      verb="Rename"
      isDisabled={name === broker.display_name}
      act={(overwrites) => change(before, { display_name: name }, overwrites)}
      onDone={() => {
        const earlier = before.display_name
        setBefore({ ...before, display_name: name })
        undoable('The broker was renamed.', {
          act: () => change({ ...before, display_name: name }, { display_name: earlier }, false),
          said: `The broker is called ${earlier} again.`,
          onDone: () => {
            setBefore({ ...before, display_name: earlier })
            setName(earlier)
            reload()
          },
        })
        reload()
      }}
    >
      {(wrong) => (
        <TextInput
          label="Name"
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
          error={wrong.display_name}
          maxLength={100}
        />
      )}
    </Form>
  )
}

function LimitsPanel({ canWrite }: { canWrite: boolean }) {
  const { broker } = useBroker()
  const { change, reload } = useChange()
  const [before, setBefore] = useState<Broker>(broker)
  const [limits, setLimits] = useState(broker.limits)
  const set = (scope: 'broker' | 'client', name: string, value: number | string) =>
    setLimits((before) => ({
      ...before,
      [scope]: { ...before[scope], [name]: value === '' ? null : Number(value) },
    }))
  return (
    <Panel
      title="Limits"
      lead="Limits take effect within two seconds, also for connected clients. An empty field means the limit of your plan, or else the default limit of the server."
    >
      <fieldset disabled={!canWrite} style={{ border: 0, padding: 0, margin: 0 }}>
        <Form
          verb="Save limits"
          isDisabled={!canWrite}
          act={(overwrites) => change(before, { limits }, overwrites)}
          onDone={({ inForceMs, value }) => {
            const earlier = before.limits
            setBefore(value)
            savedUndoable('The limits were saved.', inForceMs, {
              act: () => change(value, { limits: earlier }, false),
              said: 'The limits are as they were.',
              onDone: () => {
                setBefore({ ...value, limits: earlier })
                setLimits(earlier)
                reload()
              },
            })
            reload()
          }}
        >
          {(wrong) => (
            <div className={ui.two}>
              {(['broker', 'client'] as const).map((scope) => (
                <Stack gap="sm" key={scope}>
                  <Text fw={600} size="sm">
                    {scope === 'broker' ? 'All clients together' : 'Each client'}
                  </Text>
                  {LIMITS[scope].map(({ name, label, unit }) => (
                    <NumberInput
                      key={name}
                      label={label}
                      placeholder={unlimitedText(limitOf(broker.ceiling, scope, name), unit)}
                      suffix={unit && ` ${unit}`}
                      thousandSeparator=","
                      min={0}
                      allowDecimal={false}
                      allowNegative={false}
                      value={limitOf(limits, scope, name) ?? ''}
                      onChange={(value) => set(scope, name, value)}
                      error={wrong[`limits.${scope}.${name}`]}
                    />
                  ))}
                </Stack>
              ))}
            </div>
          )}
        </Form>
      </fieldset>
    </Panel>
  )
}

/** An empty field: the plan's number, where there is a plan. The API has no field for the limits of the server. */
const unlimitedText = (ceiling: number | null | undefined, unit: string | undefined) =>
  ceiling == null ? 'server default' : `${count(ceiling)}${unit ? ` ${unit}` : ''}, by your plan`

const limitOf = (limits: Broker['ceiling'], scope: 'broker' | 'client', name: LimitName) =>
  (limits?.[scope] as Partial<Record<LimitName, number | null>> | undefined)?.[name]

function Suspend() {
  const { broker, path } = useBroker()
  const client = useQueryClient()
  const act = (what: 'suspend' | 'resume') => () => body(api.POST(`${AT}/${what}`, { params: { path } }))
  const reload = () => client.invalidateQueries({ queryKey: ['broker', path.broker] })
  return (
    <Panel
      title={broker.suspended ? 'Resume' : 'Suspend'}
      lead={
        broker.suspended
          ? 'Clients may connect again, and their sessions continue.'
          : 'All clients are disconnected and refused. Sessions and messages stay.'
      }
    >
      {broker.suspended ? (
        <Confirm
          key="resume"
          verb="Resume broker"
          title="Resume the broker?"
          loses="Clients may connect again."
          act={act('resume')}
          onDone={reload}
        >
          {(open) => <Button onClick={open}>Resume broker</Button>}
        </Confirm>
      ) : (
        <Confirm
          key="suspend"
          verb="Suspend broker"
          title={`Suspend ${broker.display_name}?`}
          loses={
            <>
              <ConnectedClients />, and refused until the broker is resumed. Nothing is deleted.
            </>
          }
          act={act('suspend')}
          onDone={reload}
        >
          {(open) => (
            <Button variant="default" onClick={open}>
              Suspend broker
            </Button>
          )}
        </Confirm>
      )}
    </Panel>
  )
}

function Delete() {
  const { broker, path } = useBroker()
  const client = useQueryClient()
  const navigate = useNavigate()
  return (
    <Panel title="Delete" lead="The broker and everything in it are gone for good.">
      <Confirm
        verb="Delete broker"
        title={`Delete ${broker.display_name}?`}
        name={broker.display_name}
        loses={<BrokerLosses />}
        act={() => body(api.DELETE(AT, { params: { path, header: { 'If-Match': '*' } } }))}
        onDone={async () => {
          done(`${broker.display_name} was deleted.`)
          await client.invalidateQueries({ queryKey: ['brokers'] })
          await navigate({ to: '/', search: { all: true } })
        }}
      >
        {(open) => (
          <Button color="red" variant="light" onClick={open}>
            Delete broker
          </Button>
        )}
      </Confirm>
    </Panel>
  )
}
