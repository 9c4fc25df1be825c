// mqtt.js over WSS, to the broker acme: node wss.mjs PORT CA. Ends with 0 when what it said came back to it.

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const mqtt = createRequire(`${process.env.NODE_CLIENTS}/`)('mqtt')
const [port, ca] = process.argv.slice(2)
// The name need not lead anywhere.
const wsOptions = { ca: readFileSync(ca), servername: 'acme.local.test' }
const client = mqtt.connect(`wss://127.0.0.1:${port}/mqtt`, { protocolVersion: 5, reconnectPeriod: 0, wsOptions })
const late = setTimeout(() => client.emit('error', new Error('nothing came within 30 s')), 30_000)

client.on('error', (error) => {
  console.error(error)
  process.exit(1)
})
client.on('message', (_topic, payload) => {
  clearTimeout(late)
  client.end(() => process.exit(payload.toString() === 'over wss' ? 0 : 1))
})
await client.subscribeAsync('from/js', { qos: 1 })
await client.publishAsync('from/js', 'over wss', { qos: 1 })
