// Members, invitations, API tokens and the audit log of an organisation.

import { queryOptions } from '@tanstack/react-query'
import { api, body, everything, type Schemas, tagged } from './client'
import { changedMeanwhile } from './problem'
import type { Role } from './session'

export type Member = Schemas['Member']
export type Invitation = Schemas['Invitation']
export type Token = Schemas['Token']
export type AuditEntry = Schemas['AuditEntry']
export type AuditPage = Schemas['List_AuditEntry']

const AT = '/organisations/{organisation}'
const ROWS_MAX = 2_000

const membersPage = (organisation: string, signal?: AbortSignal) => (cursor: string | undefined) =>
  body(
    api.GET(`${AT}/members`, {
      params: { path: { organisation }, query: { cursor, limit: 200 } },
      signal,
    }),
  )

export const membersQuery = (organisation: string) =>
  queryOptions({
    queryKey: ['org', organisation, 'members'],
    queryFn: ({ signal }) => everything<Member>(membersPage(organisation, signal), ROWS_MAX),
  })

export const changeMember = (organisation: string, user: string, role: Role) =>
  body(api.PATCH(`${AT}/members/{user}`, { params: { path: { organisation, user } }, body: { role } }))

/** Gives a member the role of before, unless somebody has changed it since `saved`. */
export async function changeMemberBack(organisation: string, saved: Member, earlier: Role) {
  const { items } = await everything<Member>(membersPage(organisation), ROWS_MAX)
  if (items.find(({ id }) => id === saved.id)?.role !== saved.role) throw changedMeanwhile()
  return changeMember(organisation, saved.id, earlier)
}

export const removeMember = (organisation: string, user: string) =>
  body(api.DELETE(`${AT}/members/{user}`, { params: { path: { organisation, user } } }))

export const invitationsQuery = (organisation: string) =>
  queryOptions({
    queryKey: ['org', organisation, 'invitations'],
    queryFn: ({ signal }) =>
      everything<Invitation>(
        (cursor) =>
          body(
            api.GET(`${AT}/invitations`, {
              params: { path: { organisation }, query: { cursor, limit: 200 } },
              signal,
            }),
          ),
        ROWS_MAX,
      ),
  })

interface InvitationOf {
  organisation: string
  invitation: Schemas['NewInvitation']
}

export const invite = ({ organisation, invitation }: InvitationOf, key: string) =>
  body(
    api.POST(`${AT}/invitations`, {
      params: { path: { organisation }, header: { 'Idempotency-Key': key } },
      body: invitation,
    }),
  )

export const deleteInvitation = (organisation: string, invitation: string) =>
  body(api.DELETE(`${AT}/invitations/{invitation}`, { params: { path: { organisation, invitation } } }))

export const tokensQuery = (organisation: string) =>
  queryOptions({
    queryKey: ['org', organisation, 'tokens'],
    queryFn: ({ signal }) =>
      everything<Token>(
        (cursor) =>
          body(
            api.GET(`${AT}/tokens`, {
              params: { path: { organisation }, query: { cursor, limit: 200 } },
              signal,
            }),
          ),
        ROWS_MAX,
      ),
  })

interface TokenOf {
  organisation: string
  token: Schemas['NewToken']
}

export const createToken = ({ organisation, token }: TokenOf, key: string) =>
  body(
    api.POST(`${AT}/tokens`, {
      params: { path: { organisation }, header: { 'Idempotency-Key': key } },
      body: token,
    }),
  )

export const deleteToken = (organisation: string, token: string) =>
  body(api.DELETE(`${AT}/tokens/{token}`, { params: { path: { organisation, token } } }))

export interface AuditFilter {
  actor?: string
  action?: string
  /** Unix milliseconds. */
  from?: number
  to?: number
}

interface AuditOf {
  organisation: string
  filter: AuditFilter
}

export const auditPage = (
  { organisation, filter }: AuditOf,
  cursor: string | undefined,
  signal: AbortSignal,
) =>
  body(
    api.GET(`${AT}/audit`, {
      params: { path: { organisation }, query: { ...filter, cursor, limit: 100 } },
      signal,
    }),
  )

export const rename = (organisation: string, name: string, etag = '*') =>
  body(api.PATCH(AT, { params: { path: { organisation }, header: { 'If-Match': etag } }, body: { name } }))

/** Takes a rename back, unless the organisation has another name than `saved` since. */
export async function renameBack(organisation: string, saved: string, earlier: string) {
  const { value, etag } = await tagged(api.GET(AT, { params: { path: { organisation } } }))
  if (value.name !== saved) throw changedMeanwhile()
  return rename(organisation, earlier, etag)
}

export const deleteOrganisation = (organisation: string) =>
  body(api.DELETE(AT, { params: { path: { organisation }, header: { 'If-Match': '*' } } }))

const LATEST = 50

/** The latest entries of the audit log. */
export const latestAuditQuery = (organisation: string) =>
  queryOptions({
    queryKey: ['org', organisation, 'audit', 'latest'],
    refetchInterval: 10_000,
    queryFn: ({ signal }) =>
      body(api.GET(`${AT}/audit`, { params: { path: { organisation }, query: { limit: LATEST } }, signal })),
  })
