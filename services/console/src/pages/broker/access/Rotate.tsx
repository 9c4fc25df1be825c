import { Radio, Select, Stack } from '@mantine/core'
import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { type Credential, credentialsQuery, type MadeCredential, rotateCredential } from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import { useOnce } from '../../../api/once'
import { Problem } from '../../../api/problem'
import { now } from '../../../lib/clock'
import { absolute } from '../../../lib/format'
import { OVERLAPS, overlapsOf, previousUntil, type Way } from '../../../lib/overlaps'
import { Form } from '../../../ui/Form'
import { useNow } from '../../../ui/Time'
import { ScramSwitch } from './ScramSwitch'

const LEAKED =
  'After a leak, choose “not at all”. Connected clients stay connected until the credential is disabled.'
const NOT_BY_SCRAM =
  ' By SCRAM-SHA-256 the old password works no longer in any case: give clients that use it the new one at once.'

interface RotateProps {
  credential: Credential
  onRotated: (made: MadeCredential) => void
}

/** A new password, and how long a former one stays valid. With two passwords the person says which one. */
export function Rotate({ credential, onRotated }: RotateProps) {
  const { user, scram: hadScram } = credential
  const { path } = useBroker()
  const client = useQueryClient()
  const until = previousUntil(credential, useNow())
  const [chosen, setChosen] = useState<Way | null>(null)
  const way = until === null ? null : chosen
  const [picked, setPicked] = useState<{ way: Way | null; overlap: string } | null>(null)
  const [scram, setScram] = useState(hadScram ?? false)
  const rotate = useOnce(rotateCredential)
  const overlaps = until === null ? OVERLAPS : overlapsOf(way, until, now())
  // An overlap was chosen for one way, and 0 of another way ends passwords.
  const value = picked?.way === way ? picked.overlap : until === null ? '3600' : (overlaps[0]?.value ?? '0')
  const keep = way === 'leaked' ? null : way

  /** The list may be older than a rotation in another tab, and then the form does not know of two passwords. */
  const send = async () => {
    try {
      return await rotate({ path, user, overlap_s: Number(value), scram, ...(keep && { keep }) })
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 409) throw error
      const { items } = await client.fetchQuery({ ...credentialsQuery(path), staleTime: 0 })
      const found = items.find((one) => one.user === user)
      if (!found || previousUntil(found, now()) === until) throw error
      throw new Problem({
        status: 409,
        detail: 'The password was rotated, or its overlap ended, since this page was read',
      })
    }
  }
  return (
    <Form
      verb="Rotate password"
      isSecondary
      isDisabled={until !== null && way === null}
      act={send}
      onDone={onRotated}
    >
      {() => (
        <>
          {until !== null && <Ways until={until} value={way} onChange={setChosen} />}
          {overlaps.length > 0 && (
            <Select
              label={way === null ? 'The old password stays valid' : `The ${way} password stays valid`}
              description={
                (way === null ? LEAKED : '') + (hadScram && way !== 'previous' ? NOT_BY_SCRAM : '')
              }
              data={overlaps}
              value={value}
              onChange={(next) => next && setPicked({ way, overlap: next })}
              allowDeselect={false}
            />
          )}
          <ScramSwitch value={scram} onChange={setScram} />
        </>
      )}
    </Form>
  )
}

interface WaysProps {
  until: number
  value: Way | null
  onChange: (way: Way) => void
}

const Ways = ({ until, value, onChange }: WaysProps) => (
  <Radio.Group
    label="A credential has two passwords at most"
    description={`The previous password is valid until ${absolute(until)}, and devices may still use it.`}
    value={value}
    onChange={(way) => onChange(way as Way)}
  >
    <Stack gap="xs" mt="xs">
      <Radio
        value={'previous' satisfies Way}
        label="The new password was lost: make another one"
        description={`The previous password stays valid until ${absolute(until)} or later. The lost one ends now.`}
      />
      <Radio
        value={'current' satisfies Way}
        label="All devices have the new password: make the next one"
        description="The new password stays valid for a while. The previous one ends now."
      />
      <Radio
        value={'leaked' satisfies Way}
        label="After a leak: end both now"
        description="Connected clients stay connected until the credential is disabled."
      />
    </Stack>
  </Radio.Group>
)
