// Publishers, and members of one shared subscription: together they get each message once.

import { Flow } from 'k6/x/mqtt'
import * as lib from './lib.js'

const publishers = lib.number('PUBLISHERS', 20)
const members = lib.number('RECEIVERS', 10)
const qos = lib.number('QOS', 1)
const rate = lib.number('RATE', 50)
const flow = new Flow('shared')

async function receiver() {
  const clients = lib.mine(members).map(i => lib.client(`member-${i}`))
  const filter = `$share/group/${lib.topic('shared/#')}`
  await lib.each(clients, 20, client => lib.receive(flow, client, filter, qos, { audience: 'group' }))
  await lib.complete(flow, publishers)
  await Promise.all(clients.map(client => client.end()))
}

async function publisher() {
  await flow.ready({ receivers: members })
  await Promise.all(lib.mine(publishers).map(async i => {
    const source = lib.client(`source-${i}`)
    await source.connect()
    await flow.publish(source, {
      topic: lib.topic(`shared/${i}`), qos, size: lib.size, seconds: lib.seconds, rate,
      window: lib.number('WINDOW', 10), ahead: qos === 0 ? lib.number('AHEAD', 100) : 0,
    })
    await source.end()
  }))
}

const scenario = lib.scenario(
  { receive: [members, receiver], publish: [publishers, publisher] }, { shared: flow },
  lib.thresholds({
    mqtt_messages_expected: lib.enough(rate, publishers),
    mqtt_publish_duration: [`p(99)<${lib.number('PUBLISH_P99_MS', 1000)}`],
  }),
)
export const options = scenario.options
export const { receive, publish, teardown } = scenario
