import { Button, Group, NumberInput, Progress, Text } from '@mantine/core'
import { IconDownload } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import type { Tagged } from '../api/client'
import {
  type CapPath,
  capQuery,
  deleteCap,
  organisationUsageQuery,
  type Span,
  type SpendCap,
  setCap,
  spanOf,
  type Used,
  usageQuery,
  type Window,
} from '../api/usage'
import { Chart } from '../charts/Chart'
import classes from '../charts/chart.module.css'
import { now } from '../lib/clock'
import { bytes, money, si } from '../lib/format'
import { edgesOf, shownRange, stepsOf } from '../lib/history'
import { saveCsv } from '../lib/save'
import { Choice } from './Choice'
import { Confirm } from './Confirm'
import { Form } from './Form'
import { Held } from './Held'
import { done, failed } from './notify'
import { Panel } from './Page'
import { Stat, Stats } from './Stat'
import { Empty, Loaded } from './State'
import { Term } from './Term'
import { Time } from './Time'
import { undoable } from './undo'

const RANGES = [
  { value: '24h', label: '24 h' },
  { value: '7d', label: '7 d' },
  { value: '30d', label: '30 d' },
  { value: 'month', label: 'This month' },
  { value: 'last-month', label: 'Last month' },
]

interface UsageRangeProps {
  /** Path of the API whose usage is shown, such as "organisations/ID". */
  of: string
  span: Span
  fileName: string
  value: string
  onChange: (range: string) => void
}

/** The time range of a usage page, and its numbers as a file. */
export function UsageRange({ of, span: { from, to, step }, fileName, value, onChange }: UsageRangeProps) {
  const csv = `/api/v1/${of}/usage?${new URLSearchParams({ from: String(from), to: String(to), step })}`
  return (
    <>
      <Choice label="Time range" data={RANGES} value={value} onChange={onChange} />
      <Button
        size="xs"
        variant="default"
        leftSection={<IconDownload size={14} />}
        onClick={() => void saveCsv(csv, fileName).catch(failed)}
      >
        CSV
      </Button>
    </>
  )
}

export function UsedNumbers({ used }: { used: Used }) {
  return (
    <Stats>
      <Stat
        label="Messages in"
        term="unit"
        value={si(used.messages_in)}
        unit={used.messages_in === 1 ? 'unit' : 'units'}
        note={`of 4 KiB; ${bytes(used.bytes_in)} published`}
      />
      <Stat
        label="Messages delivered"
        term="delivered"
        value={si(used.messages_delivered)}
        unit={used.messages_delivered === 1 ? 'unit' : 'units'}
        note={`of 4 KiB; ${bytes(used.bytes_out)} sent`}
      />
      <Stat
        label="Connected sessions"
        term="connectedSession"
        value={si(used.connected_session_minutes)}
        unit="minutes"
        note="each minute of each connected session"
      />
      <Stat
        label="Stored sessions"
        term="session"
        value={si(used.stored_session_minutes)}
        unit="minutes"
        note={
          <Term of="byteHours">
            {si(used.stored_byte_hours)} byte-hours stored, {si(used.retained_byte_hours ?? 0)} retained
          </Term>
        }
      />
    </Stats>
  )
}

/** Usage by hours or days, each a step from the start of its window to its end. Before `since` there was nothing to use. */
export function UsedCharts({ windows, span, since }: { windows: Window[]; span: Span; since: number }) {
  const at = now()
  const times = edgesOf(windows, since, at)
  const range = shownRange(span, since, at)
  const of = (value: (used: Used) => number) => stepsOf(windows, since, value)
  if (since >= span.to) {
    return (
      <Empty title="Nothing was used in this time">
        The broker was created <Time at={since} />. Choose a later time range.
      </Empty>
    )
  }
  const shared = { times, range, sync: 'usage', isStepped: true }
  return (
    <div className={classes.grid}>
      <Chart
        {...shared}
        title="Messages"
        format={si}
        series={[
          { label: 'in', values: of((used) => used.messages_in), color: '--c1' },
          { label: 'delivered', values: of((used) => used.messages_delivered), color: '--c2', dash: [6, 3] },
        ]}
      />
      <Chart
        {...shared}
        title="Bytes"
        format={bytes}
        series={[
          { label: 'in', values: of((used) => used.bytes_in), color: '--c3' },
          { label: 'out', values: of((used) => used.bytes_out), color: '--c4', dash: [6, 3] },
        ]}
      />
      <Chart
        {...shared}
        title="Session minutes"
        format={si}
        series={[
          { label: 'connected', values: of((used) => used.connected_session_minutes), color: '--c1' },
          { label: 'stored', values: of((used) => used.stored_session_minutes), color: '--c5', dash: [6, 3] },
        ]}
      />
      <Chart
        {...shared}
        title="Stored byte-hours"
        format={si}
        series={[{ label: 'stored', values: of((used) => used.stored_byte_hours), color: '--c6' }]}
      />
      {since > span.from && (
        <Text size="xs" c="dimmed">
          The charts begin <Time at={since} />.
        </Text>
      )}
    </div>
  )
}

/** The month's spending limit, and the part of it that is used. */
export function Cap({ path, canWrite }: { path: CapPath; canWrite: boolean }) {
  const query = useQuery(capQuery(path))
  const whose = path.broker ? 'this broker' : 'all brokers of the organisation'
  return (
    <Panel
      title="Spend cap"
      lead={`The most that ${whose} may cost in a month (UTC), in the currency of the region.`}
      actions={canWrite && query.data && <RemoveCap path={path} cap={query.data.value} />}
    >
      <Loaded query={query} height={80}>
        {(cap) => (
          <>
            {cap && <Spent cap={cap.value} />}
            {!cap && <Uncapped path={path} />}
            {canWrite && (
              <Held latest={cap}>
                {(held, setTouched) => (
                  <CapForm key={held?.etag} path={path} cap={held} onTouch={setTouched} />
                )}
              </Held>
            )}
          </>
        )}
      </Loaded>
    </Panel>
  )
}

/** Projected cost of the month at the present rate; null in its first hours, when a projection says nothing. */
export function forecast(spent: number, resetsAt: number, now: number): number | null {
  const end = new Date(resetsAt)
  const start = Date.UTC(end.getUTCFullYear(), end.getUTCMonth() - 1, 1)
  const passed = (now - start) / (resetsAt - start)
  return passed < 0.02 ? null : spent / Math.min(1, passed)
}

/** Without a cap: the cost of the month so far, and where it leads. */
function Uncapped({ path: { organisation, broker } }: { path: CapPath }) {
  const [span] = useState(() => spanOf('month', now()))
  const ofBroker = useQuery({
    ...usageQuery({ organisation, broker: broker ?? '' }, span),
    enabled: broker !== undefined,
  })
  const ofAll = useQuery({ ...organisationUsageQuery(organisation, span), enabled: broker === undefined })
  const spent = (broker === undefined ? ofAll : ofBroker).data?.total.cost_micros
  const month = new Date(span.from)
  const expected =
    spent && forecast(spent, Date.UTC(month.getUTCFullYear(), month.getUTCMonth() + 1, 1), now())
  return (
    <Text size="sm" mb="md" mih={22}>
      {spent ? (
        <>
          <b>{money(spent)}</b> since the first of the month.{' '}
          {expected && `About ${money(expected)} by the end of the month. `}
        </>
      ) : null}
      <Text span c="dimmed" inherit>
        There is no cap, so usage is charged without a limit.
      </Text>
    </Text>
  )
}

function Spent({ cap }: { cap: SpendCap }) {
  const part = cap.monthly_micros === 0 ? 100 : Math.min(100, (cap.spent_micros / cap.monthly_micros) * 100)
  const expected = forecast(cap.spent_micros, cap.resets_at_ms, now())
  return (
    <div style={{ marginBottom: 20 }}>
      <Group justify="space-between" mb={6}>
        <Text size="sm">
          <b>{money(cap.spent_micros)}</b> of {money(cap.monthly_micros)}
          {cap.is_reached && ', the cap is reached'}
        </Text>
        <Text size="sm" c="dimmed">
          {expected !== null && `About ${money(expected)} by the end of the month. `}
          Spending is reset <Time at={cap.resets_at_ms} />.
        </Text>
      </Group>
      <Progress
        value={part}
        color={cap.is_reached ? 'red' : 'mill'}
        aria-label="Part of the cap that is spent"
      />
    </div>
  )
}

function useCapChanged() {
  const client = useQueryClient()
  return () => {
    done('The spend cap was changed.')
    void client.invalidateQueries({ queryKey: ['cap'] })
    void client.invalidateQueries({ queryKey: ['broker'] })
  }
}

function RemoveCap({ path, cap }: { path: CapPath; cap: SpendCap }) {
  const client = useQueryClient()
  const reload = () => {
    void client.invalidateQueries({ queryKey: ['cap'] })
    void client.invalidateQueries({ queryKey: ['broker'] })
  }
  const { monthly_micros, action } = cap
  return (
    <Confirm
      verb="Remove cap"
      title="Remove the spend cap?"
      loses="Usage is then charged without a limit."
      act={() => deleteCap(path)}
      onDone={() => {
        undoable('The spend cap was removed.', {
          act: () => setCap(path, { monthly_micros, action }, undefined),
          said: `The spend cap of ${money(monthly_micros)} is back.`,
          onDone: reload,
        })
        reload()
      }}
    >
      {(open) => (
        <Button variant="default" onClick={open}>
          Remove cap
        </Button>
      )}
    </Confirm>
  )
}

interface CapFormProps {
  path: CapPath
  cap: Tagged<SpendCap> | null
  onTouch: (isTouched: boolean) => void
}

function CapForm({ path, cap, onTouch }: CapFormProps) {
  const stored = {
    amount: cap ? cap.value.monthly_micros / 1_000_000 : '',
    action: cap?.value.action ?? 'stop',
  }
  const [amount, setAmount] = useState<number | string>(stored.amount)
  const [action, setAction] = useState<SpendCap['action']>(stored.action)
  const reload = useCapChanged()
  const isChanged = amount !== stored.amount || action !== stored.action
  useEffect(() => onTouch(isChanged), [isChanged, onTouch])
  const monthly_micros = Math.round(Number(amount) * 1_000_000)
  return (
    <Form
      verb={cap ? 'Change cap' : 'Set cap'}
      act={(overwrites) => setCap(path, { monthly_micros, action }, overwrites ? '*' : cap?.etag)}
      onDone={() => {
        onTouch(false)
        reload()
      }}
      isDisabled={amount === ''}
    >
      {(wrong) => (
        <Group align="flex-end" gap="sm">
          <NumberInput
            label="Cap for a month"
            min={0}
            decimalScale={2}
            value={amount}
            onChange={setAmount}
            error={wrong.monthly_micros}
            w={140}
          />
          <Choice
            label="At the cap"
            data={[
              { value: 'stop', label: 'Stop at the cap' },
              { value: 'continue', label: 'Only record it' },
            ]}
            value={action}
            onChange={(value) => setAction(value as SpendCap['action'])}
          />
        </Group>
      )}
    </Form>
  )
}
