// Pairs of a publisher and a subscriber with a persistent session, QoS 1 (LOAD_QOS=2 for another): the broker stores
// each message before it acknowledges it. Halfway the subscribers lose their connections and come back.

import { Flow } from 'k6/x/mqtt'
import * as lib from './lib.js'

const pairs = lib.number('PAIRS', 50)
const qos = lib.number('QOS', 1)
const rate = lib.number('RATE', 20)
const window = lib.number('WINDOW', 10)
const flow = new Flow('durable-online')

async function receiver() {
  await lib.each(lib.mine(pairs), 50, async i => {
    const name = `pair-${i}`
    await lib.forget(name)
    const client = lib.persistent(name)
    const options = { from: [lib.id(`source-${i}`)] }
    await lib.receive(flow, client, lib.topic(`durable/${i}`), qos, options)
    await lib.pause(lib.seconds / 2)
    client.drop()
    // QoS 2 needs the packet ids that the client has received; at QoS 1 a client without any must get along, too.
    const again = qos === 2 ? client : lib.persistent(name)
    flow.receive(again, options)
    if (!(await again.connect()).sessionPresent) throw new Error(`the broker has forgotten the session ${name}`)
    await lib.complete(flow, pairs)
    await again.end()
    await lib.forget(name)
  })
}

async function publisher() {
  await flow.ready({ receivers: pairs })
  await Promise.all(lib.mine(pairs).map(async i => {
    const source = lib.client(`source-${i}`)
    await source.connect()
    await flow.publish(source, {
      topic: lib.topic(`durable/${i}`), qos, size: lib.size, seconds: lib.seconds, rate,
      window,
    })
    await source.end()
  }))
}

// A message of QoS 1 whose acknowledgement was lost with the connection comes again. With a rate, a subscriber that keeps up
// lags by less than its publisher's window; without one, by as many messages as it may have unacknowledged itself.
const repeated = qos === 2 ? 'count==0' : `count<=${pairs * (rate > 0 ? window : lib.number('RECEIVE_MAXIMUM', 1000))}`
const scenario = lib.scenario(
  { receive: [pairs, receiver], publish: [pairs, publisher] }, { 'durable-online': flow },
  lib.thresholds({
    mqtt_messages_expected: lib.enough(rate, pairs),
    mqtt_publish_duration: [`p(99)<${lib.number('PUBLISH_P99_MS', 1000)}`],
    mqtt_messages_repeated: [repeated],
    mqtt_delivery_duration: [`p(99)<${lib.number('DELIVERY_P99_MS', 5000)}`],
  }),
)
export const options = scenario.options
export const { receive, publish, teardown } = scenario
