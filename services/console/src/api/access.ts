// Access of clients to a broker: methods, credentials, groups and rules.

import { queryOptions } from '@tanstack/react-query'
import { now } from '../lib/clock'
import type { Replay } from '../lib/whyNot'
import type { BrokerPath } from './brokers'
import { api, body, etagOf, everything, putTagged, requireSame, type Schemas, tagged } from './client'
import { changed } from './inForce'
import { testAccess } from './messages'
import { nameTaken, Problem } from './problem'

export type Rule = Schemas['Rule']
export type AccessSettings = Schemas['AccessSettings']
export type Credential = Schemas['Credential']
export type MadeCredential = Schemas['MadeCredential']
export type NewCredential = Schemas['NewCredential']

/** Rows of a list that are loaded; `isCut` says that there are more. */
const ROWS_MAX = 5_000
const AT = '/organisations/{organisation}/brokers/{broker}'

export const accessQuery = (path: BrokerPath) =>
  queryOptions({
    queryKey: ['b', path.broker, 'access'],
    queryFn: ({ signal }) => tagged(api.GET(`${AT}/access`, { params: { path }, signal })),
  })

const setAccess = (path: BrokerPath, settings: AccessSettings, etag: string) =>
  changed(api.PUT(`${AT}/access`, { params: { path, header: { 'If-Match': etag } }, body: settings }))

/** Changes fields of the access settings that a form has read in `before`. The other fields stay as the server has them now. If somebody
 * has changed the same fields since, the change is refused unless it `overwrites` theirs. */
export async function changeAccess(
  path: BrokerPath,
  before: AccessSettings,
  change: Partial<AccessSettings>,
  overwrites = false,
) {
  const { value, etag } = await tagged(api.GET(`${AT}/access`, { params: { path } }))
  const stored = ownSettings(value)
  if (!overwrites) requireSame(stored, before, Object.keys(change) as (keyof AccessSettings)[])
  return setAccess(path, { ...stored, ...change }, etag)
}

/** The settings with which the form begins. A broker that goes by the server's settings has none of its own yet. */
export const ownSettings = (settings: AccessSettings): AccessSettings =>
  settings.by_settings ? {} : settings

/** Gives the broker access settings of its own, which then count instead of the server's. */
export async function giveOwnAccess(path: BrokerPath) {
  const { value, etag } = await tagged(api.GET(`${AT}/access`, { params: { path } }))
  // Another person may have done it since, and switched passwords off.
  if (!value.by_settings)
    return { inForceMs: null, takesCredentials: value.passwords !== false || value.scram !== false }
  const { inForceMs } = await setAccess(path, ownSettings(value), etag)
  return { inForceMs, takesCredentials: true }
}

export const credentialsQuery = (path: BrokerPath) =>
  queryOptions({
    queryKey: ['b', path.broker, 'credentials'],
    queryFn: ({ signal }) =>
      everything<Credential>(
        (cursor) =>
          body(api.GET(`${AT}/credentials`, { params: { path, query: { cursor, limit: 200 } }, signal })),
        ROWS_MAX,
      ),
  })

/** Null: there is no credential of this user name. */
export const credentialQuery = (path: BrokerPath, user: string) =>
  queryOptions({
    queryKey: ['b', path.broker, 'credentials', user],
    queryFn: async ({ signal }): Promise<Credential | null> => {
      try {
        return await body(
          api.GET(`${AT}/credentials/{user}`, { params: { path: { ...path, user } }, signal }),
        )
      } catch (error) {
        if (error instanceof Problem && error.status === 404) return null
        throw error
      }
    },
  })

type Asked = Pick<Schemas['AccessQuestion'], 'client_id' | 'user' | 'action' | 'topic'>

const PUBLISH_WAYS = [
  { way: '', qos: 0, retain: false },
  { way: 'with RETAIN', qos: 0, retain: true },
  { way: 'with QoS 1', qos: 1, retain: false },
  { way: 'with QoS 2', qos: 2, retain: false },
]
const SUBSCRIBE_WAYS = [{ way: '', qos: 2, retain: false }]

/** Asks today's rules about a packet. An incident does not say QoS and RETAIN, so a PUBLISH is asked for with each. */
export const replayQuery = (path: BrokerPath, asked: Asked) =>
  queryOptions({
    queryKey: ['b', path.broker, 'replay', asked],
    staleTime: 5_000,
    queryFn: (): Promise<Replay[]> => {
      const ways = asked.action === 'publish' ? PUBLISH_WAYS : SUBSCRIBE_WAYS
      return Promise.all(
        ways.map(async ({ way, qos, retain }) => {
          const question = { ...asked, qos, ...(asked.action === 'publish' && { retain }) }
          return { way, answer: await testAccess(path, question) }
        }),
      )
    },
  })

interface CredentialOf {
  path: BrokerPath
  credential: NewCredential
}

export const createCredential = ({ path, credential }: CredentialOf, key: string) =>
  body(
    api.POST(`${AT}/credentials`, {
      params: { path, header: { 'Idempotency-Key': key } },
      body: credential,
    }),
  )

type Rotation = Schemas['Rotation']

interface RotationOf extends Rotation {
  path: BrokerPath
  user: string
}

export const rotateCredential = ({ path, user, ...rotation }: RotationOf, key: string) =>
  body(
    api.POST(`${AT}/credentials/{user}/rotate`, {
      params: { path: { ...path, user }, header: { 'Idempotency-Key': key } },
      body: rotation,
    }),
  )

/** Fields of a credential that a form changes. A rotation of its password is no conflict with it. */
const EDITED = ['client_id', 'enabled', 'expires_at_ms', 'group', 'rules'] as const

/** Changes a credential as the form has read it: fields that are left out keep their values. `overwrites` replaces a change that
 * somebody has saved since. */
export async function changeCredential(
  path: BrokerPath,
  before: Credential,
  change: Partial<Schemas['CredentialChange']>,
  overwrites: boolean,
) {
  const at = { ...path, user: before.user }
  const asked = tagged(api.GET(`${AT}/credentials/{user}`, { params: { path: at } }))
  const etag = overwrites ? (await asked).etag : await etagOf(asked, before, EDITED)
  const { client_id, enabled, expires_at_ms, group, rules } = before
  return body(
    api.PUT(`${AT}/credentials/{user}`, {
      params: { path: at, header: { 'If-Match': etag } },
      body: { client_id, enabled, expires_at_ms, group, rules, ...change },
    }),
  )
}

export const deleteCredential = (path: BrokerPath, user: string) =>
  body(
    api.DELETE(`${AT}/credentials/{user}`, {
      params: { path: { ...path, user }, header: { 'If-Match': '*' } },
    }),
  )

/** The parts of access that have a name: they are listed, put and deleted alike. */
export const NAMED = ['groups', 'client-cas', 'jwt-issuers', 'bans'] as const
export type Named = (typeof NAMED)[number]

export interface NamedRows {
  groups: Schemas['ShownGroup']
  'client-cas': Schemas['ShownClientCa']
  'jwt-issuers': Schemas['ShownJwtIssuer']
  bans: Schemas['ShownBan']
}

export interface NamedSettings {
  groups: Schemas['GroupSettings']
  'client-cas': Schemas['ClientCaSettings']
  'jwt-issuers': Schemas['JwtIssuerSettings']
  bans: Schemas['BanSettings']
}

export const namedQuery = <K extends Named>(path: BrokerPath, kind: K) =>
  queryOptions({
    queryKey: ['b', path.broker, kind],
    queryFn: ({ signal }) =>
      everything<NamedRows[K]>(
        (cursor) =>
          body(
            // One route for each kind; all of them answer with a list of their rows.
            api.GET(`${AT}/${kind as 'groups'}`, { params: { path, query: { cursor, limit: 200 } }, signal }),
          ) as never,
        ROWS_MAX,
      ),
  })

/** `before` is what the form has read; undefined: nothing of this name may be there. `overwrites` replaces what somebody else has saved. */
export function putNamed<K extends Named>(
  path: BrokerPath,
  kind: K,
  name: string,
  settings: NamedSettings[K],
  before: NamedRows[K] | undefined,
  overwrites = false,
) {
  // One route for each kind.
  const route = `${AT}/${kind as 'groups'}/{name}` as const
  const at = { ...path, name }
  return putTagged(
    (header) => body(api.PUT(route, { params: { path: at, header }, body: settings as never })),
    () => tagged(api.GET(route, { params: { path: at } })),
    before as NamedRows['groups'] | undefined,
    overwrites,
  )
}

/** Adds a ban. Its name is made of whom it bans, so a ban of this name that has ended, or that bans the same and ends no later, is
 * replaced. */
export async function addBan(path: BrokerPath, name: string, ban: NamedSettings['bans'], overwrites = false) {
  try {
    return await putNamed(path, 'bans', name, ban, undefined, overwrites)
  } catch (error) {
    if (!(error instanceof Problem && error.isTaken)) throw error
    const at = { ...path, name }
    const { value } = await tagged(api.GET(`${AT}/bans/{name}`, { params: { path: at } }))
    if (!isReplaceable(value, ban))
      throw nameTaken(`There is a ban ${name} already, of somebody else or for longer: see Access, Bans`)
    return putNamed(path, 'bans', name, ban, value)
  }
}

function isReplaceable(earlier: NamedRows['bans'], ban: NamedSettings['bans']) {
  const end = earlier.until_ms ?? Number.POSITIVE_INFINITY
  if (end <= now()) return true
  const whom = ({ client_id, user, address }: NamedSettings['bans']) =>
    JSON.stringify([client_id ?? null, user ?? null, address ?? null])
  return whom(earlier) === whom(ban) && end <= (ban.until_ms ?? Number.POSITIVE_INFINITY)
}

export const deleteNamed = (path: BrokerPath, kind: Named, name: string) =>
  body(
    api.DELETE(`${AT}/${kind as 'groups'}/{name}`, {
      params: { path: { ...path, name }, header: { 'If-Match': '*' } },
    }),
  )
