import { Button, Drawer, Stack } from '@mantine/core'
import { IconPlus } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { deleteNamed, type Named, type NamedRows, namedQuery } from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import { capitalised } from '../../../lib/format'
import { Confirm } from '../../../ui/Confirm'
import { done } from '../../../ui/notify'
import { Panel } from '../../../ui/Page'
import { type Column, Rows } from '../../../ui/Rows'
import { Empty, Loaded } from '../../../ui/State'
import { NEW, useEdit } from './useEdit'

interface NamedListProps<K extends Named> {
  kind: K
  title: string
  lead: string
  /** Why none of them counts now. */
  notice?: ReactNode
  /** An item in the singular, such as "group". */
  noun: string
  empty: { title: string; text: string }
  columns: Column<NamedRows[K]>[]
  /** The loss that deleting an item causes. */
  loses: (row: NamedRows[K]) => ReactNode
  /** The fields; `row` is undefined for a new one. */
  form: (row: NamedRows[K] | undefined, onDone: () => void) => ReactNode
}

/** Lists, adds, changes and deletes records of access with a name: groups, issuers, client CAs, bans. */
export function NamedList<K extends Named>(props: NamedListProps<K>) {
  const { kind, title, lead, notice, noun, empty, columns, loses, form } = props
  const { path, can } = useBroker()
  const client = useQueryClient()
  const query = useQuery(namedQuery(path, kind))
  const { edit, isNew, set } = useEdit()
  const canWrite = can('access:write')
  const verb = `Add ${noun}`
  const finish = () => {
    void client.invalidateQueries({ queryKey: ['b', path.broker, kind] })
    set(undefined)
  }
  const add = canWrite && (
    <Button leftSection={<IconPlus size={16} />} onClick={() => set(NEW)}>
      {verb}
    </Button>
  )
  return (
    <Panel isFlush title={title} lead={lead} actions={add}>
      {(query.data?.items.length ?? 0) > 0 && notice}
      <Loaded query={query} height={200}>
        {({ items }) => {
          const row = items.find(({ name }) => name === edit)
          return (
            <>
              {items.length === 0 ? (
                <Empty title={empty.title}>{empty.text}</Empty>
              ) : (
                <Rows
                  label={title}
                  rows={items}
                  columns={columns}
                  idOf={({ name }) => name}
                  onOpen={canWrite ? ({ name }) => set(name) : undefined}
                />
              )}
              <Drawer
                opened={canWrite && (isNew || edit !== undefined)}
                onClose={() => set(undefined)}
                title={edit === undefined ? verb : capitalised(`${noun} ${edit}`)}
                size={560}
              >
                {(isNew || row) && (
                  <Stack gap="xl" key={edit}>
                    {form(row, finish)}
                    {row && (
                      <Confirm
                        verb={`Delete ${noun}`}
                        title={`Delete ${row.name}?`}
                        loses={loses(row)}
                        act={() => deleteNamed(path, kind, row.name)}
                        onDone={() => {
                          done(`${row.name} was deleted.`)
                          finish()
                        }}
                      >
                        {(open) => (
                          <Button
                            color="red"
                            variant="light"
                            onClick={open}
                            style={{ alignSelf: 'flex-start' }}
                          >
                            Delete {noun}
                          </Button>
                        )}
                      </Confirm>
                    )}
                  </Stack>
                )}
                {!isNew && !row && (
                  <Empty title="There is nothing of this name">It was deleted meanwhile.</Empty>
                )}
              </Drawer>
            </>
          )
        }}
      </Loaded>
    </Panel>
  )
}
