// Shared by the scenarios: settings from the environment, clients, roles, and thresholds.

import exec from 'k6/execution'
import { Counter } from 'k6/metrics'
import { Client } from 'k6/x/mqtt'

/** A number from the environment: LOAD_PAIRS=50. */
export function number(name, fallback) {
  const text = __ENV[`LOAD_${name}`]
  if (text === undefined || text === '') return fallback
  const value = Number(text)
  if (!Number.isFinite(value) || value < 0) throw new Error(`LOAD_${name} must be a number, not "${text}"`)
  return value
}

const finished = new Counter('load_roles_finished')

export const seconds = number('SECONDS', 10)
export const size = number('SIZE', 100)
export const version = __ENV.MQTT_VERSION || '5.0'
const perVU = number('CONNECTIONS_PER_VU', 50)
const prefix = __ENV.LOAD_PREFIX || 'load'

const file = name => (__ENV[name] ? open(__ENV[name]) : '')
const [ca, cert, key] = ['MQTT_CA', 'MQTT_CERT', 'MQTT_KEY'].map(file)

export const topic = name => `${prefix}/${name}`
export const id = name => `${prefix}-${name}`

/** A client of the broker under test. */
export function client(name, more) {
  const settings = Object.assign({ url: __ENV.MQTT_URL || 'mqtt://127.0.0.1:1883', version, clientId: id(name) }, more)
  if (__ENV.MQTT_USERNAME && settings.username === undefined) settings.username = __ENV.MQTT_USERNAME
  if (__ENV.MQTT_PASSWORD && settings.password === undefined) settings.password = __ENV.MQTT_PASSWORD
  if (ca || cert) settings.tls = { ca, cert, key }
  return new Client(settings)
}

/** A client whose session outlives its connections. */
export function persistent(name, more) {
  const session = version === '5.0' ? { sessionExpirySeconds: 3600 } : {}
  return client(name, Object.assign({ cleanStart: false }, session, more))
}

/** Ends the session of an earlier run, or of this one. */
export async function forget(name) {
  const once = client(name, { cleanStart: true })
  await once.connect()
  await once.end()
}

/** Calls `run`, which returns a promise, for each item; at most `atOnce` promises are open at once. */
export async function each(items, atOnce, run) {
  const rest = items.slice()
  const worker = async () => {
    while (rest.length > 0) await run(rest.shift())
  }
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, worker))
}

export const users = count => Math.max(1, Math.ceil(count / perVU))

/** Which of `count` connections this VU has. */
export function mine(count) {
  const own = []
  for (let i = exec.scenario.iterationInTest; i < count; i += users(count)) own.push(i)
  return own
}

/** The summary has these statistics of each duration: the ones in thresholds, and the number of samples, which slowdown.py needs. */
export const statistics = ['avg', 'med', 'p(90)', 'p(95)', 'p(99)', 'p(99.9)', 'max', 'count']

export const pause = s => new Promise(resolve => setTimeout(resolve, s * 1000))

/**
 * Limits of mqtt_messages_expected: nine tenths of what this number of publishers with this rate sends to this number of receivers. A broker that takes
 * less makes the publishers wait, which no time shows. A rate of 0 plans nothing, because each publisher is then as fast as its broker.
 */
export const enough = (rate, publishers, receivers = 1) =>
  [rate > 0 ? `count>=${Math.floor(0.9 * rate * seconds * publishers * receivers)}` : 'count>0']

/** Thresholds of a run in which nothing may be lost. */
export function thresholds(more) {
  const none = ['count==0']
  return Object.assign({
    mqtt_messages_expected: ['count>0'],
    mqtt_messages_lost: none,
    mqtt_messages_repeated: none,
    mqtt_messages_out_of_order: none,
    mqtt_messages_stray: none,
    mqtt_errors: none,
    mqtt_delivery_duration: [`p(99)<${number('DELIVERY_P99_MS', 2000)}`],
  }, more)
}

/**
 * Makes the exports of a scenario. Each role, such as { receive: [100, run] }, has a number of connections and a function, which
 * runs once in each VU of the role. flows are judged at the end, by their names.
 */
export function scenario(roles, flows, limits) {
  const made = { options: { scenarios: {}, summaryTrendStats: statistics } }
  let vus = 0
  for (const [role, [count, run]] of Object.entries(roles)) {
    vus += users(count)
    made.options.scenarios[role] = {
      executor: 'per-vu-iterations', exec: role, vus: users(count), iterations: 1,
      maxDuration: `${seconds + 300}s`, gracefulStop: '5s',
    }
    made[role] = async data => {
      await run(data)
      finished.add(1)
    }
  }
  // k6 continues when a function throws, so the roles that came to their end are counted.
  made.options.thresholds = Object.assign({ load_roles_finished: [`count==${vus}`] }, limits)
  made.teardown = () => {
    const verdicts = {}
    for (const [name, flow] of Object.entries(flows)) verdicts[name] = judge(name, flow)
    return verdicts
  }
  return made
}

/** Connects a client that receives the flow, subscribes, and marks it as ready, so that the publishers may begin. */
export async function receive(flow, to, filter, qos, options) {
  flow.receive(to, options)
  await to.connect()
  await to.subscribe(filter, { qos })
  flow.arrive()
}

/** Waits until all is delivered or nothing comes any more. */
export const complete = (flow, publishers) => flow.complete({
  publishers, timeoutSeconds: seconds + 120, quietSeconds: number('QUIET_SECONDS', 5),
})

function judge(name, flow) {
  const v = flow.verdict()
  console.log(`${name}: ${v.sent} sent, ${v.expected} deliveries expected, ${v.received} received, ${v.lost} lost, `
    + `${v.repeated} repeated, ${v.outOfOrder} out of order, ${v.stray} stray; p50 ${v.p50} ms, p99 ${v.p99} ms`)
  return v
}
