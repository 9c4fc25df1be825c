// Devices lose their connections at once, and a watcher must get the will of each, once. Devices that disconnect
// leave no will behind.

import { Counter, Trend } from 'k6/metrics'
import * as lib from './lib.js'

const devices = lib.number('DEVICES', 200)
const polite = Math.ceil(devices / 10)
const received = new Counter('wills_received')
const stray = new Counter('wills_stray')
const duration = new Trend('will_delivery_duration', true)
const waitSeconds = lib.number('QUIET_SECONDS', 5)

const device = (kind, i) => {
  const topic = lib.topic(`will/${kind}-${i}`)
  return { topic, client: lib.client(`${kind}-${i}`, { will: { topic, payload: 'gone', qos: 1 } }) }
}

async function run() {
  const dropped = new Map()
  let came = 0
  const watcher = lib.client('watcher')
  watcher.on('message', message => {
    const at = dropped.get(message.topic)
    if (at === undefined || message.text() !== 'gone') return stray.add(1)
    dropped.delete(message.topic)
    came += 1
    received.add(1)
    duration.add(Date.now() - at)
  })
  await watcher.connect()
  await watcher.subscribe(lib.topic('will/+'), { qos: 1 })

  const rude = Array.from({ length: devices }, (_, i) => device('rude', i))
  const leaving = Array.from({ length: polite }, (_, i) => device('polite', i))
  await lib.each([...rude, ...leaving], 20, ({ client }) => client.connect())
  await lib.each(leaving, 20, ({ client }) => client.end())
  for (const { topic, client } of rude) {
    dropped.set(topic, Date.now())
    client.drop()
  }
  for (let waited = 0; came < devices && waited < waitSeconds; waited += 0.1) await lib.pause(0.1)
  // A will too many may come after the others.
  await lib.pause(0.5)
  await watcher.end()
}

const scenario = lib.scenario({ watch: [1, run] }, {}, {
  wills_received: [`count==${devices}`],
  wills_stray: ['count==0'],
  mqtt_errors: ['count==0'],
  will_delivery_duration: [`p(99)<${lib.number('DELIVERY_P99_MS', 2000)}`],
})
export const options = scenario.options
export const { watch } = scenario
