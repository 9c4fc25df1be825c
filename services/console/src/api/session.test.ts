import './pageAddress.testing'
import { QueryClient } from '@tanstack/react-query'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { followOtherTab, may, meQuery, type Permission, type Role, type Session } from './session'
import { isSessionOver, setSessionOver } from './sessionOver'

test.each<[Role, Permission, boolean]>([
  ['owner', 'organisation:write', true],
  ['operator', 'organisation:write', false],
  ['operator', 'access:write', true],
  ['viewer', 'clients:write', false],
  ['viewer', 'audit:read', true],
])('%s, %s: %s', (role, permission, expected) => {
  expect(may(role, permission)).toBe(expected)
})

describe('a session that another tab has changed', () => {
  const session = (id: string, csrf_token: string) =>
    ({ user: { id, name: id }, organisations: [], csrf_token }) as unknown as Session
  const assign = vi.fn()
  let client: QueryClient
  let now: Session

  beforeEach(() => {
    vi.stubGlobal('location', { assign })
    vi.stubGlobal(
      'BroadcastChannel',
      class {
        postMessage() {}
      },
    )
    vi.stubGlobal('fetch', async () => Response.json(now))
    client = new QueryClient()
    client.setQueryData(meQuery.queryKey, session('ann', 'first'))
  })
  afterEach(() => {
    setSessionOver(false)
    assign.mockReset()
    vi.unstubAllGlobals()
  })
  const shown = () => client.getQueryData(meQuery.queryKey)

  test('is not taken over by the page of another person', async () => {
    now = session('bob', 'second')
    void client.fetchQuery({ ...meQuery, staleTime: 0 })
    await vi.waitFor(() => expect(assign).toHaveBeenCalledExactlyOnceWith('/'))
    expect(shown()?.user.id).toBe('ann')
  })

  test('leads the page of another person away as soon as the other tab says so', async () => {
    now = session('bob', 'second')
    await followOtherTab(client, 'bob')
    expect(assign).toHaveBeenCalledExactlyOnceWith('/')
    expect(shown()?.user.id).toBe('ann')
  })

  test('of the same person has the token of the new session', async () => {
    now = session('ann', 'second')
    await followOtherTab(client, null)
    expect(isSessionOver()).toBe(true)
    await followOtherTab(client, 'ann')
    expect(isSessionOver()).toBe(false)
    expect(shown()?.csrf_token).toBe('second')
    expect(assign).not.toHaveBeenCalled()
  })
})
