import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import type { Schemas } from '../api/client'
import {
  type ConnectFacts,
  connectPath,
  connectRefusalSince,
  isKnownReason,
  LIMITS_OF,
  packetOf,
  type TopicFacts,
  topicPath,
} from './whyNot'

type Incident = Schemas['Incident']

const incident = (kind: Incident['kind'], reason: string, what?: string): Incident => ({
  id: '1',
  at_ms: 1000,
  last_at_ms: 1000,
  count: 1,
  kind,
  reason,
  what,
})

const connect = (facts: Partial<ConnectFacts>) =>
  connectPath({
    refusal: null,
    connection: null,
    obstacles: [],
    bans: [],
    client: 'pump-7',
    user: 'pump',
    now: 5000,
    ...facts,
  })

const outcomes = (steps: { outcome: string }[]) => steps.map(({ outcome }) => outcome)

test.each([
  ['connect_refused', undefined, 'connect'],
  ['limit_reached', 'client.connects_per_min', 'connect'],
  ['limit_reached', 'client.packet_bytes', 'publish'],
  ['limit_reached', 'client.subscriptions', 'subscribe'],
  ['limit_reached', 'client.queue', null],
  ['messages_dropped', undefined, null],
] as const)('%s %s is about %s', (kind, what, packet) => {
  expect(packetOf({ kind, what })).toBe(packet)
})

test('a client of which nothing is recorded is not said to be refused as anonymous', () => {
  const obstacles = ['the broker accepts no anonymous clients']
  const [identity] = connect({ user: null, obstacles }).slice(3)
  expect(identity?.outcome).toBe('unknown')
  expect(identity?.text).toContain('is not known')
  const refusal = incident('connect_refused', 'the broker admits no anonymous clients')
  expect(connect({ user: null, obstacles, refusal })[3]?.outcome).toBe('refused')
})

test.each([
  ['the user name or the password is wrong: set a new password', 3, 'credentials'],
  ['the credential of this user name is disabled or has expired', 3, 'credentials'],
  ['the broker admits no anonymous clients: connect with a user name and password', 3, 'methods'],
  ['no method of the broker accepts what the client presents', 3, 'methods'],
  ['the settings of the server admit no anonymous clients: connect with a user name', 3, 'methods'],
  [
    'the settings of the server do not know the user name and password that the client sent',
    3,
    'credentials',
  ],
  ['the broker requires a certificate, and the client presented none', 3, 'methods'],
  [
    'the certificate is refused: the certificate, or one above it, has expired: issue a new one',
    3,
    'certificates',
  ],
  ["the keys of the token's issuer cannot be fetched now", 3, 'tokens'],
  ['the webhook refused the client', 3, 'methods'],
  ['the client\'s group "a" is missing or invalid', 3, 'groups'],
  ["not allowed to publish the will's topic", 4, 'rules'],
])('a CONNECT that was refused because %s', (reason, place, tab) => {
  const steps = connect({ refusal: incident('connect_refused', reason) })
  expect(steps.findIndex(({ outcome }) => outcome === 'refused')).toBe(place)
  expect(steps[place]?.change?.tab).toBe(tab)
  expect(outcomes(steps.slice(0, place))).not.toContain('refused')
  expect(outcomes(steps.slice(place + 1))).not.toContain('passed')
})

/** The sentences of a Rust source that `pattern` finds, with line continuations joined. */
const sentencesOf = (source: string, pattern: RegExp) =>
  [...readFileSync(`../${source}`, 'utf8').matchAll(pattern)].map(([, text = '']) =>
    text.replace(/\\\n\s*/g, ''),
  )

const SERVER_REASONS = [
  ...sentencesOf('access/src/entry.rs', /#\[error\(\s*"([^"]+)"/g),
  ...sentencesOf('edge/src/core/authenticate.rs', /const (?:NOT_BY|NO_USER_OF)_SETTINGS: &str = "([^"]+)"/g),
  ...sentencesOf('edge/src/core/admit.rs', /^\s+"([a-z][^"]+ [^"]+)",$/gm),
  ...sentencesOf('edge/src/core/resume/ask.rs', /let what = "([^"]+)"/g),
  ...sentencesOf('edge/src/broker.rs', /const OVER_CAP: &str = "([^"]+)"/g),
  ...sentencesOf('control/src/domain/access_test.rs', /obstacles\.push\((?:format!\()?"([^"]+)"/g),
]

test('the sources of the server have their reasons where this test looks for them', () => {
  expect(SERVER_REASONS.length).toBeGreaterThanOrEqual(30)
  expect(SERVER_REASONS).toContain("this client identifier belongs to another user's session")
})

test.each(SERVER_REASONS)('a pattern knows the reason of the server: %s', (reason) => {
  expect(isKnownReason(reason)).toBe(true)
})

test("a client id of another user's session leads to that session", () => {
  const refusal = incident('connect_refused', "this client identifier belongs to another user's session")
  const refused = connect({ refusal }).find(({ outcome }) => outcome === 'refused')
  expect(refused?.change).toEqual({ label: 'Look at the session', page: 'sessions', edit: 'pump-7' })
})

test('each limit that the server declares has its packet, and no other limit has one', () => {
  const declarations = readFileSync('../edge/metrics.toml', 'utf8')
  const [, labels = ''] =
    /^name = "millrace_limits_reached_total"$[^[]*^labels\.limit = \[(.*)\]$/m.exec(declarations) ?? []
  const declared = [...labels.matchAll(/"([^"]+)"/g)].map(([, label]) => label)
  expect(declared.length).toBeGreaterThan(20)
  expect(Object.keys(LIMITS_OF).sort()).toEqual(declared.sort())
})

test('a CONNECT that a limit refused counts as a refusal; older ones and limits of other packets do not', () => {
  const limited = { ...incident('limit_reached', 'full', 'broker.connections'), last_at_ms: 3000 }
  const slowed = { ...incident('limit_reached', 'slow', 'client.publishes_per_s'), last_at_ms: 4000 }
  const refused = { ...incident('connect_refused', 'a ban'), last_at_ms: 2000 }
  expect(connectRefusalSince([refused, slowed, limited], 2000)).toBe(limited)
  expect(connectRefusalSince([refused, slowed], 2000)).toBe(refused)
  expect(connectRefusalSince([refused, slowed], 2001)).toBeUndefined()
})

test('a limit refuses before the bans are looked at', () => {
  const refusal = incident(
    'limit_reached',
    'the client connects more often than it may: it is told to try again later',
    'client.connects_per_min',
  )
  expect(outcomes(connect({ refusal }))).toEqual([
    'passed',
    'refused',
    'not reached',
    'not reached',
    'not reached',
  ])
})

test.each(['broker.stored_sessions', 'broker.will_bytes'])(
  '%s is a limit, whatever its sentence says',
  (what) => {
    const steps = connect({
      refusal: incident('limit_reached', 'wills take more memory than they may', what),
    })
    expect(steps[1]).toMatchObject({ outcome: 'refused', change: { page: 'settings' } })
  },
)

test('a client that connected after its refusal passed all checks', () => {
  const refusal = incident('connect_refused', 'the user name or the password is wrong')
  const connection = { user: 'pump', method: 'password', connected_at_ms: 2000 }
  expect(new Set(outcomes(connect({ refusal, connection })))).toEqual(new Set(['passed']))
})

test('a ban is named, with its reason, without any incident', () => {
  const ban = { name: 'storm', created_at_ms: 0, client_id: 'pump-7', reason: 'reconnects all the time' }
  const [, , step] = connect({ bans: [ban], obstacles: ['a ban names the client id or the user'] })
  expect(step).toMatchObject({ outcome: 'refused', change: { tab: 'bans' } })
  expect(step?.text).toContain('The ban storm keeps it out: reconnects all the time')
})

const topic = (facts: Partial<TopicFacts>) =>
  topicPath({
    packet: 'publish',
    topic: 'secret/plan',
    refusal: null,
    connection: { user: 'pump', method: 'password', connected_at_ms: 2000 },
    isOverCap: false,
    replays: [],
    group: 'pumps',
    user: 'pump',
    ...facts,
  })

const answer = (of: Partial<Schemas['AccessAnswer']>): Schemas['AccessAnswer'] => ({
  allowed: true,
  decided_by: 'no_rules',
  reason: 'there are no rules, so everything is allowed',
  obstacles: [],
  ...of,
})

test('the deciding rule is the last of the path, with its place and where it is edited', () => {
  const rule = { effect: 'deny', action: 'all', filter: 'secret/#' } as const
  const denied = answer({
    allowed: false,
    decided_by: 'group',
    of: 'pumps',
    rule_index: 2,
    rule,
    reason: 'a rule denies it',
  })
  const steps = topic({ replays: [{ way: '', answer: denied }] })
  expect(steps.at(-2)).toMatchObject({ name: 'Rules of credential pump', outcome: 'passed' })
  expect(steps.at(-1)).toMatchObject({
    name: 'Rules of group pumps',
    outcome: 'refused',
    text: 'Rule 3: deny all secret/#. A rule denies it.',
    change: { tab: 'groups', edit: 'pumps' },
  })
})

test('what only RETAIN makes forbidden is found', () => {
  const rule = { effect: 'allow', action: 'publish', filter: 'secret/#', retain: false } as const
  const by = { decided_by: 'credential', of: 'pump', rule_index: 0, rule } as const
  const steps = topic({
    replays: [
      { way: '', answer: answer(by) },
      {
        way: 'with RETAIN',
        answer: answer({ ...by, allowed: false, reason: 'the rule for this topic does not allow RETAIN' }),
      },
    ],
  })
  expect(steps.at(-1)).toMatchObject({ name: 'Rules of credential pump', outcome: 'refused' })
  expect(steps.at(-1)?.text).toContain('does not allow RETAIN')
})

test('no rule that matches says what to add', () => {
  const none = answer({
    allowed: false,
    decided_by: 'no_rule',
    reason: 'there are rules, and none of them allows it',
  })
  const steps = topic({ replays: [{ way: '', answer: none }] })
  expect(steps.map(({ name }) => name)).toEqual([
    'Connection',
    'Spend cap',
    'Limits',
    'Rules of credential pump',
    'Rules of group pumps',
    'Rules of all clients',
    'No rule allows it',
  ])
  expect(steps.at(-1)?.text).toContain('publish for secret/plan')
})

test('a refusal that the rules of today allow says that they were changed', () => {
  const refusal = incident('publish_refused', 'not allowed to publish to this topic', 'secret/plan')
  const steps = topic({ refusal, replays: [{ way: '', answer: answer({}) }] })
  expect(steps.at(-1)).toMatchObject({ outcome: 'passed' })
  expect(steps.at(-1)?.text).toContain('It is allowed today')
})

test('rates make a publisher slower, other limits refuse', () => {
  const limited = (what: string) => topic({ refusal: incident('limit_reached', 'a limit', what) })[2]?.outcome
  expect(limited('client.publishes_per_s')).toBe('slowed')
  expect(limited('broker.retained_messages')).toBe('refused')
})

test('rules of a token are said to be unknown', () => {
  const connection = { user: 'pump', method: 'token:own', connected_at_ms: 2000 }
  const denied = answer({ allowed: false, decided_by: 'no_rule', reason: 'none' })
  const steps = topic({ connection, replays: [{ way: '', answer: denied }] })
  expect(steps.find(({ name }) => name === 'Rules of its own')?.outcome).toBe('unknown')
})

test('a limit of which nothing is recorded is not said to be clear', () => {
  expect(connect({})[1]).toMatchObject({ name: 'Limits', outcome: 'unknown' })
  expect(connect({})[1]?.text).toContain('Not recorded')
  expect(topic({})[2]).toMatchObject({ name: 'Limits', outcome: 'unknown' })
  const refusal = incident('publish_refused', 'not allowed to publish to this topic', 'secret/plan')
  expect(topic({ refusal })[2]).toMatchObject({ name: 'Limits', outcome: 'passed' })
})
