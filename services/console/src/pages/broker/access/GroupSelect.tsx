import { Select } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { namedQuery } from '../../../api/access'
import { useBroker } from '../../../api/brokers'

/** A group of the broker, or none. */
export function GroupSelect({
  value,
  onChange,
  error,
  description = 'Its rules are checked after those of the credential.',
}: {
  value: string | null
  onChange: (group: string | null) => void
  error?: string
  description?: string
}) {
  const { path } = useBroker()
  const { data } = useQuery(namedQuery(path, 'groups'))
  return (
    <Select
      label="Group"
      description={description}
      placeholder="none"
      data={(data?.items ?? []).map(({ name }) => name)}
      value={value}
      onChange={onChange}
      error={error}
      clearable
      searchable
    />
  )
}
