// mqtt.js over mqtts and wss of the process alone.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { test } from 'node:test'

const mqtt = createRequire(`${process.env.NODE_CLIENTS}/`)('mqtt')
const { OPEN_MQTTS, OPEN_WSS, OPEN_CERTS } = process.env
const ca = readFileSync(`${OPEN_CERTS}/ca.crt`)
const large = Buffer.alloc(300_000, 'x')

for (const [url, protocolVersion] of [
  [`mqtts://localhost:${OPEN_MQTTS}`, 4],
  [`mqtts://localhost:${OPEN_MQTTS}`, 5],
  [`wss://localhost:${OPEN_WSS}/mqtt`, 4],
  [`wss://localhost:${OPEN_WSS}/mqtt`, 5],
]) {
  test(`mqtt.js, version ${protocolVersion}, over ${url.split(':')[0]}`, { timeout: 20_000 }, async () => {
    const client = mqtt.connect(url, { ca, protocolVersion, reconnectPeriod: 0 })
    await once(client, 'connect')
    await client.subscribeAsync('mqttjs', { qos: 2 })
    for (const [qos, payload] of [[0, Buffer.from('hello')], [1, large], [2, large]]) {
      const message = once(client, 'message')
      await client.publishAsync('mqttjs', payload, { qos })
      assert.ok((await message)[1].equals(payload))
    }
    await client.endAsync()
  })
}
