// All sessions lose their connections at once, messages come for them meanwhile, and all come back at once. Each must
// find its session and get each message.

import { Flow } from 'k6/x/mqtt'
import * as lib from './lib.js'

const sessions = lib.number('SESSIONS', 500)
const messages = lib.number('MESSAGES', 10)
const flow = new Flow('reconnect')
const gone = new Flow('gone')
const stored = new Flow('stored')
const storm = 'mqtt_connect_duration{phase:storm}'

async function receiver() {
  const own = lib.mine(sessions).map(i => `session-${i}`)
  await lib.each(own, 20, async name => {
    await lib.forget(name)
    const client = lib.persistent(name)
    await client.connect()
    await client.subscribe(lib.topic('reconnect'), { qos: 1 })
    client.drop()
    gone.arrive()
  })
  await stored.ready({ receivers: 1 })
  const back = await Promise.all(own.map(async name => {
    const client = lib.persistent(name, { tags: { phase: 'storm' } })
    flow.receive(client)
    if (!(await client.connect()).sessionPresent) throw new Error(`the broker has forgotten the session ${name}`)
    flow.arrive()
    return client
  }))
  await lib.complete(flow, 1)
  await Promise.all(back.map(client => client.end()))
  await lib.each(own, 20, lib.forget)
}

async function publisher() {
  await gone.ready({ receivers: sessions, timeoutSeconds: 120 })
  const source = lib.client('source')
  await source.connect()
  await flow.publish(source, { topic: lib.topic('reconnect'), qos: 1, size: lib.size, count: messages })
  await source.end()
  stored.arrive()
}

const scenario = lib.scenario(
  { receive: [sessions, receiver], publish: [1, publisher] }, { reconnect: flow },
  lib.thresholds({
    mqtt_messages_expected: [`count==${sessions * messages}`],
    [storm]: [`p(99)<${lib.number('CONNECT_P99_MS', 5000)}`],
    // The backlog waits until its session is back.
    mqtt_delivery_duration: [`p(99)<${lib.number('DELIVERY_P99_MS', 60000)}`],
  }),
)
export const options = scenario.options
export const { receive, publish, teardown } = scenario
