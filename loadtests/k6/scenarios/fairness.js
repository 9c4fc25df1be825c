// A tenant's latency alone, and beside a neighbour that sends ten times what its broker may take. Both use the same
// topic, so a message that comes to the wrong tenant is seen as a stray one.

import { Flow } from 'k6/x/mqtt'
import { Gauge } from 'k6/metrics'
import * as lib from './lib.js'
import { broker, tenant } from './tenant.js'

const rate = lib.number('RATE', 200)
const limit = lib.number('NEIGHBOUR_LIMIT', 1000)
const publishers = lib.number('PUBLISHERS', 10)
const flows = { alone: new Flow('alone'), beside: new Flow('beside'), neighbour: new Flow('neighbour') }
const aloneIsMeasured = new Flow('barrier')
const ratio = new Gauge('neighbour_p99_ratio')

async function measure(flow, { steady }) {
  const sink = lib.client('sink', steady)
  const source = lib.client('source', steady)
  flow.receive(sink)
  await Promise.all([sink.connect(), source.connect()])
  await sink.subscribe(lib.topic('fairness'), { qos: 1 })
  await flow.publish(source, { topic: lib.topic('fairness'), qos: 1, size: lib.size, rate, seconds: lib.seconds, window: 100 })
  await lib.complete(flow, 1)
  await Promise.all([sink.end(), source.end()])
}

async function steady(brokers) {
  await measure(flows.alone, brokers)
  aloneIsMeasured.arrive()
  await flows.neighbour.ready({ receivers: 1 })
  await measure(flows.beside, brokers)
}

async function neighbour({ noisy }) {
  const sink = lib.client('sink', noisy)
  flows.neighbour.receive(sink)
  await sink.connect()
  await sink.subscribe(lib.topic('fairness'), { qos: 0 })
  const sources = Array.from({ length: publishers }, (_, i) => lib.client(`noisy-${i}`, noisy))
  await Promise.all(sources.map(source => source.connect()))
  await aloneIsMeasured.ready({ receivers: 1, timeoutSeconds: 2 * lib.seconds + 60 })
  flows.neighbour.arrive()
  await Promise.all(sources.map(source => flows.neighbour.publish(source, {
    topic: lib.topic('fairness'), qos: 0, size: lib.size, rate: 10 * limit / publishers, seconds: lib.seconds, window: 64,
  })))
  sink.drop()
  sources.forEach(source => source.drop())
}

const scenario = lib.scenario({ quiet: [1, steady], loud: [1, neighbour] }, flows, {
  'mqtt_messages_lost{flow:alone}': ['count==0'],
  'mqtt_messages_lost{flow:beside}': ['count==0'],
  'mqtt_messages_expected{flow:beside}': [`count>=${rate * lib.seconds * 0.9}`],
  // A neighbour within its limit would prove nothing.
  'mqtt_messages_expected{flow:neighbour}': [`count>${limit * lib.seconds}`],
  'mqtt_messages_out_of_order{flow:beside}': ['count==0'],
  'mqtt_delivery_duration{flow:beside}': [`p(99)<${lib.number('DELIVERY_P99_MS', 500)}`],
  mqtt_messages_stray: ['count==0'],
  neighbour_p99_ratio: [`value<${lib.number('RATIO_MAX', 10)}`],
})
export const options = scenario.options
export const { quiet, loud } = scenario

export function setup() {
  const limits = { broker: { publishes_per_s: limit } }
  return { steady: broker(tenant('steady')).login, noisy: broker(tenant('noisy'), { limits }).login }
}

export function teardown() {
  const { alone, beside } = scenario.teardown()
  // Below this, the ratio would say how the machine schedules and not who waits for whom.
  const floor = lib.number('FLOOR_MS', 5)
  ratio.add(Math.max(beside.p99, floor) / Math.max(alone.p99, floor))
}
