// Connections come at LOAD_RATE a second until there are LOAD_CONNECTIONS. At the top each of them must get
// LOAD_MESSAGES messages, so that none is open in name only.

import { Flow } from 'k6/x/mqtt'
import * as lib from './lib.js'

const connections = lib.number('CONNECTIONS', 2000)
const rate = lib.number('RATE', 500)
const messages = lib.number('MESSAGES', 5)
const flow = new Flow('connect')

async function receiver() {
  const began = Date.now()
  const clients = []
  await Promise.all(lib.mine(connections).map(async i => {
    await lib.pause(Math.max(0, i / rate - (Date.now() - began) / 1000))
    const client = lib.client(`device-${i}`)
    clients.push(client)
    await lib.receive(flow, client, lib.topic('connect'), 1)
  }))
  await lib.complete(flow, 1)
  await Promise.all(clients.map(client => client.end()))
}

async function publisher() {
  const source = lib.client('source')
  await source.connect()
  await flow.ready({ receivers: connections, timeoutSeconds: connections / rate + 60 })
  await flow.publish(source, { topic: lib.topic('connect'), qos: 1, size: lib.size, count: messages })
  await source.end()
}

const scenario = lib.scenario(
  { receive: [connections, receiver], publish: [1, publisher] }, { connect: flow },
  lib.thresholds({
    mqtt_messages_expected: [`count==${connections * messages}`],
    mqtt_connects: [`count>=${connections}`],
    mqtt_connect_duration: [`p(99)<${lib.number('CONNECT_P99_MS', 3000)}`],
  }),
)
export const options = scenario.options
export const { receive, publish, teardown } = scenario
