// Many publishers, one subscriber with a wildcard.

import { Flow } from 'k6/x/mqtt'
import * as lib from './lib.js'

const publishers = lib.number('PUBLISHERS', 100)
const rate = lib.number('RATE', 20)
const flow = new Flow('fanin')

async function receiver(qos) {
  const sink = lib.client('sink')
  await lib.receive(flow, sink, lib.topic('fanin/#'), qos)
  await lib.complete(flow, publishers)
  await sink.end()
}

async function publisher(qos) {
  await flow.ready({ receivers: 1 })
  await Promise.all(lib.mine(publishers).map(async i => {
    const source = lib.client(`source-${i}`)
    await source.connect()
    await flow.publish(source, {
      topic: lib.topic(`fanin/${i}`), qos, size: lib.size, seconds: lib.seconds, rate,
      // Without acknowledgements only the receiver says how fast is too fast.
      window: lib.number('WINDOW', qos === 0 ? 64 : 1), ahead: qos === 0 ? lib.number('AHEAD', 100) : 0,
    })
    await source.end()
  }))
}

export const fanin = qos => lib.scenario(
  { receive: [1, () => receiver(qos)], publish: [publishers, () => publisher(qos)] }, { fanin: flow },
  lib.thresholds(Object.assign(
    { mqtt_messages_expected: lib.enough(rate, publishers) },
    qos > 0 ? { mqtt_publish_duration: [`p(99)<${lib.number('PUBLISH_P99_MS', 1000)}`] } : {},
  )),
)
