// Why a client's packet was refused: the server's checks in their order, and the check that refused it.
// Callers pass in the records of the API (incidents, the connection) and its answers of now (access test); nothing is fetched here.

import type { Schemas } from '../api/client'
import { legible } from './format'
import { reasonText } from './incidents'
import { ruleText } from './rules'

type Incident = Schemas['Incident']
type Answer = Schemas['AccessAnswer']
type Ban = Schemas['ShownBan']

export const PACKETS = ['connect', 'subscribe', 'publish'] as const
export type Packet = (typeof PACKETS)[number]

/** A link to the page on which the reader can change the setting that decided. */
export interface Change {
  label: string
  page: 'access' | 'settings' | 'usage' | 'incidents' | 'sessions'
  tab?: string
  /** The entry that the page opens: a name of the access page, or the client id of a session. */
  edit?: string
}

export type Outcome = 'passed' | 'refused' | 'slowed' | 'unknown' | 'not reached'

export interface Step {
  name: string
  outcome: Outcome
  text: string
  change?: Change
}

/** The packet that each limit refuses or slows; null for limits of messages on their way to the client. */
export const LIMITS_OF: Record<string, Packet | null> = {
  'broker.connections': 'connect',
  'broker.connects_per_s': 'connect',
  'client.connects_per_min': 'connect',
  'broker.stored_sessions': 'connect',
  'broker.will_bytes': 'connect',
  'broker.filters_per_s': 'subscribe',
  'broker.subscriptions': 'subscribe',
  'broker.filter_bytes': 'subscribe',
  'server.filter_bytes': 'subscribe',
  'client.subscriptions': 'subscribe',
  'filter.share_names': 'subscribe',
  'broker.publishes_per_s': 'publish',
  'broker.publish_bytes_per_s': 'publish',
  'client.publishes_per_s': 'publish',
  'client.publish_bytes_per_s': 'publish',
  'client.packet_bytes': 'publish',
  'packet.properties': 'publish',
  'topic.matching_filters': 'publish',
  'broker.retained_messages': 'publish',
  'broker.retained_bytes': 'publish',
  'client.topic_alias_bytes': 'publish',
  'broker.topic_alias_bytes': 'publish',
  'server.input_bytes': 'publish',
  'server.retained_bytes': 'publish',
  'server.memory': 'publish',
  'client.queue': null,
  'broker.queue_bytes': null,
}

/** The packet that an incident is about; null for messages on their way to the client. */
export function packetOf({ kind, what }: Pick<Incident, 'kind' | 'what'>): Packet | null {
  if (kind === 'connect_refused') return 'connect'
  if (kind === 'subscribe_refused') return 'subscribe'
  if (kind === 'publish_refused') return 'publish'
  return kind === 'limit_reached' ? (LIMITS_OF[what ?? ''] ?? null) : null
}

/** The latest refusal of a CONNECT at `since` or later, whether a check or a limit refused it. */
export const connectRefusalSince = (incidents: readonly Incident[], since: number): Incident | undefined =>
  incidents
    .filter((one) => one.last_at_ms >= since && packetOf(one) === 'connect')
    .toSorted((a, b) => b.last_at_ms - a.last_at_ms)[0]

/** These limits make a connection slower; the others refuse the packet. */
const isSlowing = (limit: string) => /\.(publishes|publish_bytes|filters)_per_s$/.test(limit)

type Check = 'broker' | 'limits' | 'bans' | 'identity' | 'will'

const CHECKS: { check: Check; name: string }[] = [
  { check: 'broker', name: 'The broker accepts clients' },
  { check: 'limits', name: 'Limits' },
  { check: 'bans', name: 'Bans' },
  { check: 'identity', name: 'User, token or certificate' },
  { check: 'will', name: 'Will message' },
]

const CAP: Change = { label: 'Raise the spend cap', page: 'usage' }
const LIMIT: Change = { label: 'Change the limits', page: 'settings' }
const METHODS: Change = { label: 'Choose how clients connect', page: 'access', tab: 'methods' }
const RULES: Change = { label: 'Edit the rules of all clients', page: 'access', tab: 'rules' }

type Who = Pick<ConnectFacts, 'client' | 'user'>

/** Patterns of the server's reasons, each with the check that gives the reason. The first match decides. */
const REASONS: [RegExp, Check, Change | ((who: Who) => Change) | undefined][] = [
  [/suspended/, 'broker', { label: 'Resume the broker', page: 'settings' }],
  [/spend cap/, 'broker', CAP],
  [/\bban/, 'bans', { label: 'Look at the bans', page: 'access', tab: 'bans' }],
  [/too many clients|server is behind/, 'limits', undefined],
  [/as many connections|connects? (to the broker )?(more often )?than|more clients connect/, 'limits', LIMIT],
  [
    /another user's session/,
    'identity',
    ({ client }) => ({ label: 'Look at the session', page: 'sessions', edit: client }),
  ],
  [/will/, 'will', RULES],
  [/connect token/, 'identity', undefined],
  [/token/, 'identity', { label: 'Look at the JWT issuers', page: 'access', tab: 'tokens' }],
  [
    /certificate is refused/,
    'identity',
    { label: 'Look at the client CAs', page: 'access', tab: 'certificates' },
  ],
  [/group/, 'identity', { label: 'Look at the groups', page: 'access', tab: 'groups' }],
  [/anonymous|method|certificate|webhook|enhanced authentication/, 'identity', METHODS],
  [
    /credential|password|user name/,
    'identity',
    ({ user }) => ({
      label: 'Look at the credential',
      page: 'access',
      tab: 'credentials',
      edit: user ?? undefined,
    }),
  ],
]

interface Placed {
  check: Check
  change?: Change
}

/** False when no pattern knows the sentence. */
export const isKnownReason = (reason: string) => REASONS.some(([pattern]) => pattern.test(reason))

function placed(reason: string, who: Who): Placed {
  for (const [pattern, check, change] of REASONS) {
    if (pattern.test(reason)) return { check, change: typeof change === 'function' ? change(who) : change }
  }
  return { check: 'identity' }
}

const placedIncident = ({ kind, reason }: Incident, who: Who): Placed =>
  kind === 'limit_reached' ? { check: 'limits', change: LIMIT } : placed(reason, who)

export interface Connection {
  user?: string | null
  method: string
  connected_at_ms: number
}

export interface ConnectFacts {
  /** The latest incident about a CONNECT. */
  refusal: Incident | null
  /** Null: not connected now. */
  connection: Connection | null
  /** Obstacles that exist now, apart from the password. */
  obstacles: string[]
  bans: Ban[]
  client: string
  user: string | null
  now: number
}

/** Bans that name the client or its user and have not ended. */
export const bansOf = (bans: Ban[], client: string, user: string | null, now: number) =>
  bans.filter(
    ({ client_id, user: banned, until_ms }) =>
      (until_ms == null || until_ms > now) && (client_id === client || (banned != null && banned === user)),
  )

/** The checks of a CONNECT. */
export function connectPath(facts: ConnectFacts): Step[] {
  const { refusal, connection, obstacles, bans, client, user, now } = facts
  if (connection && (!refusal || connection.connected_at_ms >= refusal.last_at_ms)) {
    return CHECKS.map(({ check, name }) => ({ name, outcome: 'passed', text: passedText(check, connection) }))
  }
  const recorded = refusal && { text: reasonText(refusal.reason), ...placedIncident(refusal, facts) }
  const today = obstacles.map((text) => ({ text: reasonText(text), ...placed(text, facts) }))
  const at = recorded ? CHECKS.findIndex(({ check }) => check === recorded.check) : CHECKS.length
  return CHECKS.map(({ check, name }, place): Step => {
    const obstacle = today.find((one) => one.check === check)
    if (obstacle && !recorded && user === null && /anonymous/.test(obstacle.text)) {
      return {
        name,
        outcome: 'unknown',
        text: 'The server has recorded no connection or refusal of this client, so its user is not known. Without a user, a token or a certificate, it would be refused.',
        change: obstacle.change,
      }
    }
    if (obstacle) {
      const ban = check === 'bans' ? bansOf(bans, client, user, now)[0] : undefined
      const text = ban ? banText(ban) : obstacle.text
      return { name, outcome: 'refused', text: `${text}. This still applies today.`, change: obstacle.change }
    }
    if (recorded && place === at)
      return { name, outcome: 'refused', text: `${recorded.text}.`, change: recorded.change }
    if (recorded && place > at) return { name, outcome: 'not reached', text: 'An earlier check decided.' }
    if (!recorded && check === 'bans' && bans.some(({ address }) => address != null)) {
      return {
        name,
        outcome: 'unknown',
        text: 'No ban names the client or its user. An address may be banned too, but the server has not recorded the address of this client.',
        change: { label: 'Look at the bans', page: 'access', tab: 'bans' },
      }
    }
    if (recorded) return { name, outcome: 'passed', text: `${CLEAR[check]}.` }
    if (check === 'limits') return { name, outcome: 'unknown', text: LIMITS_NOT_RECORDED }
    if (check === 'identity' || check === 'will') {
      return {
        name,
        outcome: 'unknown',
        text: 'Only the client knows which credentials it sends. No setting of the broker refuses it.',
      }
    }
    return { name, outcome: 'passed', text: `${CLEAR[check]}.` }
  })
}

const LIMITS_NOT_RECORDED =
  'Not recorded. A limit that the client reaches is listed below as an incident, for seven days.'

const CLEAR: Record<Check, string> = {
  broker: 'It is not suspended, and no spend cap is reached',
  limits: 'No limit was reached',
  bans: 'No ban names the client or its user',
  identity: 'The client was authenticated',
  will: 'No will message was refused',
}

function passedText(check: Check, { user, method }: Connection) {
  if (check !== 'identity') return `${CLEAR[check]}.`
  const [kind, name] = method.split(/:(.*)/)
  if (kind === 'anonymous') return 'Accepted without credentials, because anonymous clients may connect.'
  const by = name ? `${kind} ${name}` : kind
  return user ? `Known as user ${legible(user)}, by ${by}.` : `Accepted without a user name, by ${by}.`
}

function banText({ name, reason }: Ban) {
  return reason ? `The ban ${name} keeps it out: ${reason}` : `The ban ${name} keeps it out`
}

/** The access test's answer for one way to send a packet. */
export interface Replay {
  /** Such as "with QoS 2", "with RETAIN"; empty for the plain packet. */
  way: string
  answer: Answer
}

export interface TopicFacts {
  packet: 'subscribe' | 'publish'
  /** Null: no topic is named yet. */
  topic: string | null
  refusal: Incident | null
  connection: Connection | null
  isOverCap: boolean
  /** Empty: nothing was asked yet. */
  replays: Replay[]
  group: string | null
  user: string | null
}

/** The checks of a SUBSCRIBE or a PUBLISH. */
export function topicPath(facts: TopicFacts): Step[] {
  const { packet, refusal, connection, isOverCap } = facts
  const steps: Step[] = [
    connection
      ? { name: 'Connection', outcome: 'passed', text: passedText('identity', connection) }
      : { name: 'Connection', outcome: 'unknown', text: 'Not connected now. See CONNECT for the reason.' },
  ]
  if (packet === 'publish') {
    const text = isOverCap ? 'The spend cap is reached: the server refuses each PUBLISH.' : 'Not reached.'
    steps.push({
      name: 'Spend cap',
      outcome: isOverCap ? 'refused' : 'passed',
      text,
      change: isOverCap ? CAP : undefined,
    })
  }
  steps.push(limitStep(refusal))
  steps.push(...ruleSteps(facts))
  return steps
}

function limitStep(refusal: Incident | null): Step {
  const name = 'Limits'
  if (refusal?.kind === 'limit_reached') {
    const limit = refusal.what ?? ''
    const change = /^(filter|topic|server)\./.test(limit) ? undefined : LIMIT
    return {
      name,
      outcome: isSlowing(limit) ? 'slowed' : 'refused',
      text: `${reasonText(refusal.reason)} (${limit}).`,
      change,
    }
  }
  // A topic or filter that is too long or has too many levels is recorded as a refusal: only its reason names the limit.
  if (refusal && /level|long|bytes/.test(refusal.reason)) {
    return { name, outcome: 'refused', text: `${reasonText(refusal.reason)}.` }
  }
  if (refusal) return { name, outcome: 'passed', text: `${CLEAR.limits}.` }
  return { name, outcome: 'unknown', text: LIMITS_NOT_RECORDED }
}

const LISTS = ['credential', 'group', 'broker'] as const

function ruleSteps({ packet, topic, replays, refusal, connection, group, user }: TopicFacts): Step[] {
  const name = 'Rules'
  if (topic === null) {
    const what = packet === 'publish' ? 'a topic' : 'a topic filter'
    return [{ name, outcome: 'unknown', text: `Name ${what} above to try the rules.` }]
  }
  const decisive = replays.find(({ answer }) => !answer.allowed) ?? replays[0]
  if (!decisive) return []
  const { answer, way } = decisive
  const foreign = foreignRules(connection)
  if (answer.decided_by === 'protocol' || answer.decided_by === 'settings') {
    return [{ name, outcome: answer.allowed ? 'passed' : 'refused', text: `${reasonText(answer.reason)}.` }]
  }
  if (answer.decided_by === 'no_rules') {
    return [{ name, ...allowedNow(refusal, 'The client has no rule at all, so it may do everything.') }]
  }
  const said = way === '' ? '' : ` ${way}`
  const steps: Step[] = []
  const deciding = (LISTS as readonly string[]).indexOf(answer.decided_by)
  LISTS.forEach((list, place) => {
    const title = titleOf(list, list === 'group' ? (answer.decided_by === 'group' ? answer.of : group) : user)
    if (title === null) return
    if (deciding >= 0 && place > deciding) return
    if (place !== deciding) {
      steps.push({ name: title, outcome: 'passed', text: 'No rule in this list matches.' })
      return
    }
    const rule = answer.rule
    const where = answer.rule_index == null ? 'A rule' : `Rule ${answer.rule_index + 1}`
    const text = rule ? `${where}: ${ruleText(rule)}.` : reasonText(answer.reason)
    const change = changeOf(list, answer.of ?? user)
    const outcome = answer.allowed
      ? allowedNow(refusal, text)
      : { outcome: 'refused' as const, text: `${text} ${reasonText(answer.reason)}${said}.` }
    steps.push({ name: title, ...outcome, change })
  })
  if (answer.decided_by === 'no_rule') {
    steps.push({
      name: 'No rule allows it',
      outcome: 'refused',
      text: `A client that has rules may do only what a rule allows. Add one that allows ${packet}${said} for ${topic}.`,
      change: group ? changeOf('group', group) : user ? changeOf('credential', user) : RULES,
    })
  }
  if (foreign) steps.unshift({ name: 'Rules of its own', outcome: 'unknown', text: foreign })
  return steps
}

function allowedNow(refusal: Incident | null, text: string): { outcome: Outcome; text: string } {
  const isRefusal = refusal?.kind === 'publish_refused' || refusal?.kind === 'subscribe_refused'
  if (!isRefusal) return { outcome: 'passed', text }
  return { outcome: 'passed', text: `${text} It is allowed today: the rules were changed after the refusal.` }
}

/** Rules that the connection brought with it, which the access test does not know. */
function foreignRules(connection: Connection | null): string | null {
  if (!connection) return null
  if (connection.method.startsWith('token'))
    return 'Its token may carry rules. They come first, and are not known here.'
  if (connection.method === 'webhook')
    return 'The access webhook may have given it rules. They come first, and are not known here.'
  return null
}

function titleOf(list: (typeof LISTS)[number], name: string | null | undefined): string | null {
  if (list === 'broker') return 'Rules of all clients'
  if (name == null) return null
  return list === 'credential' ? `Rules of credential ${name}` : `Rules of group ${name}`
}

function changeOf(list: (typeof LISTS)[number], name: string | null | undefined): Change {
  if (list === 'broker' || name == null) return RULES
  if (list === 'group') return { label: `Edit group ${name}`, page: 'access', tab: 'groups', edit: name }
  return { label: `Edit credential ${name}`, page: 'access', tab: 'credentials', edit: name }
}
