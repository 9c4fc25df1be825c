// One publisher, many subscribers, QoS 0 (LOAD_QOS=1 for another); at most LOAD_AHEAD messages ahead of the slowest.

import { Flow } from 'k6/x/mqtt'
import * as lib from './lib.js'

const receivers = lib.number('RECEIVERS', 200)
const qos = lib.number('QOS', 0)
const rate = lib.number('RATE', 20)
const flow = new Flow('fanout')

async function receiver() {
  const clients = lib.mine(receivers).map(i => lib.client(`receiver-${i}`))
  await lib.each(clients, 20, client => lib.receive(flow, client, lib.topic('fanout'), qos))
  await lib.complete(flow, 1)
  await Promise.all(clients.map(client => client.end()))
}

async function publisher() {
  const source = lib.client('source')
  await source.connect()
  await flow.ready({ receivers })
  await flow.publish(source, {
    topic: lib.topic('fanout'), qos, size: lib.size, seconds: lib.seconds, rate,
    window: lib.number('WINDOW', 20), ahead: lib.number('AHEAD', 100),
  })
  await source.end()
}

const scenario = lib.scenario(
  { receive: [receivers, receiver], publish: [1, publisher] }, { fanout: flow },
  lib.thresholds({ mqtt_messages_expected: lib.enough(rate, 1, receivers) }),
)
export const options = scenario.options
export const { receive, publish, teardown } = scenario
