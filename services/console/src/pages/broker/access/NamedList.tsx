import { Button, Stack } from '@mantine/core'
import { notifications } from '@mantine/notifications'
import { IconPlus } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import {
  deleteNamed,
  type Named,
  type NamedRows,
  type NamedSettings,
  namedQuery,
  putNamed,
} from '../../../api/access'
import { useBroker } from '../../../api/brokers'
import { capitalised } from '../../../lib/format'
import { Confirm } from '../../../ui/Confirm'
import { Drawer } from '../../../ui/Drawer'
import { done, failed } from '../../../ui/notify'
import { Panel } from '../../../ui/Page'
import { type Column, Rows } from '../../../ui/Rows'
import { Empty, Loaded } from '../../../ui/State'
import { undoable } from '../../../ui/undo'
import { Gone } from './Gone'
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
  /** The settings that bring a deleted item back. Without it, a deletion is for good: the API does not show all of an item. */
  settingsOf?: (row: NamedRows[K]) => NamedSettings[K]
  /** A deleted row goes before the server has answered: only where a deletion that fails unseen does no harm. */
  isShownAtOnce?: boolean
  /** The fields; `row` is undefined for a new one. */
  form: (row: NamedRows[K] | undefined, onDone: () => void) => ReactNode
}

/** Lists, adds, changes and deletes records of access with a name: groups, issuers, client CAs, bans. */
export function NamedList<K extends Named>(props: NamedListProps<K>) {
  const { kind, title, lead, notice, noun, empty, columns, loses, settingsOf, isShownAtOnce, form } = props
  const { path, can } = useBroker()
  const client = useQueryClient()
  const query = useQuery(namedQuery(path, kind))
  const { edit, isNew, set } = useEdit()
  const canWrite = can('access:write')
  const verb = `Add ${noun}`
  const reload = () => void client.invalidateQueries({ queryKey: ['b', path.broker, kind] })
  const finish = () => {
    reload()
    set(undefined)
  }
  const sayDeleted = (row: NamedRows[K], deletion: Promise<unknown>) => {
    const said = `${row.name} was deleted.`
    if (!settingsOf) return done(said)
    return undoable(said, {
      // Without an ETag, putNamed only creates: a record that somebody has made since stays.
      act: () => deletion.then(() => putNamed(path, kind, row.name, settingsOf(row), undefined)),
      said: `${capitalised(noun)} ${row.name} is back.`,
      onDone: reload,
    })
  }
  const remove = async (row: NamedRows[K]) => {
    const deletion = deleteNamed(path, kind, row.name)
    if (!isShownAtOnce) {
      await deletion
      sayDeleted(row, deletion)
      return finish()
    }
    const { queryKey } = namedQuery(path, kind)
    // An answer from before the deletion would bring the row back.
    void client.cancelQueries({ queryKey })
    client.setQueryData(
      queryKey,
      (before) => before && { ...before, items: before.items.filter(({ name }) => name !== row.name) },
    )
    const note = sayDeleted(row, deletion)
    set(undefined)
    deletion
      .catch((error: unknown) => {
        if (note) notifications.hide(note)
        failed(error)
      })
      .finally(reload)
  }
  const add = canWrite && (
    <Button leftSection={<IconPlus size={16} />} onClick={() => set(NEW)}>
      {verb}
    </Button>
  )
  return (
    <Panel isFlush title={title} lead={lead} actions={query.data?.items.length !== 0 && add}>
      {(query.data?.items.length ?? 0) > 0 && notice}
      <Loaded query={query} height={200}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title={empty.title} action={add}>
              {empty.text}
            </Empty>
          ) : (
            <Rows
              label={title}
              rows={items}
              columns={columns}
              idOf={({ name }) => name}
              onOpen={canWrite ? ({ name }) => set(name) : undefined}
            />
          )
        }
      </Loaded>
      {/* A new one can be added before the list has loaded. */}
      <Drawer
        opened={canWrite && (isNew || edit !== undefined)}
        onClose={() => set(undefined)}
        title={edit === undefined ? verb : capitalised(`${noun} ${edit}`)}
        size={560}
      >
        {isNew && (
          <Stack gap="xl" key={NEW}>
            {form(undefined, finish)}
          </Stack>
        )}
        {edit !== undefined && (
          <Loaded query={query}>
            {({ items }) => {
              const row = items.find(({ name }) => name === edit)
              if (!row) return <Gone title="No entry has this name" onClose={() => set(undefined)} />
              return (
                <Stack gap="xl" key={edit}>
                  {form(row, finish)}
                  <Confirm
                    verb={`Delete ${noun}`}
                    title={`Delete ${row.name}?`}
                    loses={loses(row)}
                    act={() => remove(row)}
                  >
                    {(open) => (
                      <Button color="red" variant="light" onClick={open} style={{ alignSelf: 'flex-start' }}>
                        Delete {noun}
                      </Button>
                    )}
                  </Confirm>
                </Stack>
              )
            }}
          </Loaded>
        )}
      </Drawer>
    </Panel>
  )
}
