// MQTT.js authenticates by SCRAM-SHA-256 (MQTT 5.0 enhanced authentication) as users that the API has made, at the broker `default`,
// which belongs to the first account and is that of clients without a server name.
//
// Run by run.sh, with NODE_CLIENTS set to the folder in which the clients are installed.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { test } from 'node:test'
import { answers, auth, METHOD, Scram } from './scram.mjs'

const mqtt = createRequire(`${process.env.NODE_CLIENTS}/`)('mqtt')
const { OPEN_PORT, OPEN_HTTP, OPEN_LOG } = process.env

/** A client and its CONNACK, or the reason with which it was refused. */
function connect(user, password, more = {}) {
  const scram = new Scram(user, password)
  const client = mqtt.connect(`mqtt://127.0.0.1:${OPEN_PORT}`, {
    protocolVersion: 5,
    reconnectPeriod: 0,
    properties: { authenticationMethod: METHOD, authenticationData: scram.first() },
    ...more,
  })
  client.handleAuth = answers(scram)
  return new Promise((resolve, reject) => {
    client.once('connect', (connack) => resolve({ client, connack, scram }))
    client.once('error', (error) => {
      client.end(true)
      error.code === undefined ? reject(error) : resolve({ refused: error.code })
    })
  })
}

/** Signs up the first account, and returns a function that sends a request about its broker `default`. */
async function account() {
  const token = /\/sign-up#(\S+)/.exec(readFileSync(OPEN_LOG, 'utf8'))[1]
  const json = { 'Content-Type': 'application/json' }
  const api = `${OPEN_HTTP}/api/v1`
  const ann = { email: 'ann@example.org', password: 'a sentence that nobody knows', name: 'Ann', token }
  const signedUp = await fetch(`${api}/sign-up`, { method: 'POST', headers: json, body: JSON.stringify(ann) })
  const me = await signedUp.json()
  const headers = {
    ...json,
    'X-CSRF-Token': me.csrf_token,
    Cookie: signedUp.headers.getSetCookie().map((cookie) => cookie.split(';')[0]).join('; '),
  }
  const broker = `${api}/organisations/${me.organisations[0].id}/brokers/default`
  return async (method, path, body, more = {}) => {
    const answer = await fetch(broker + path, { method, headers: { ...headers, ...more }, body: JSON.stringify(body) })
    const text = await answer.text()
    assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`)
    return text && JSON.parse(text)
  }
}

const ask = await account()
await ask('PUT', '/access', { passwords: false, scram: true }, { 'If-Match': '*' })
// The server makes the password of one user; the other has a chosen one.
const made = await ask('POST', '/credentials', { user: 'made', scram: true })
await ask('POST', '/credentials', { user: 'chosen', password: 'hunter2 of Ann', scram: true })

// The event loops look for changes twice a second.
for (let first = await connect('made', made.secret); ; first = await connect('made', made.secret)) {
  first.client?.end(true)
  if (first.refused !== 0x8c) break
  await new Promise((resolve) => setTimeout(resolve, 50))
}

test('a made and a chosen password are proven, and the server is believed', async () => {
  for (const [user, password] of [['made', made.secret], ['chosen', 'hunter2 of Ann']]) {
    const { client, connack, scram } = await connect(user, password, { username: user })
    assert.equal(connack.properties.authenticationMethod, METHOD)
    assert.ok(scram.believes(connack.properties.authenticationData))
    await client.subscribeAsync('a', { qos: 1 })
    const got = new Promise((resolve) => client.once('message', (topic, payload) => resolve(`${topic} ${payload}`)))
    await client.publishAsync('a', 'x', { qos: 1 })
    assert.equal(await got, 'a x')
    await client.endAsync()
  }
})

test('a client authenticates anew, and is disconnected when it fails', async () => {
  const { client } = await connect('made', made.secret)
  const anew = (password) =>
    new Promise((resolve) => {
      const scram = new Scram('made', password)
      client.handleAuth = answers(scram, (data) => resolve(scram.believes(data)))
      client.once('disconnect', (packet) => resolve(packet.reasonCode))
      client._sendPacket(auth(0x19, scram.first()))
    })
  assert.equal(await anew(made.secret), true)
  await client.publishAsync('a', 'x', { qos: 1 })
  assert.equal(await anew('wrong'), 0x87)
  client.end(true)
})

test('a wrong password, an unknown user and another user name are refused', async () => {
  for (const [user, password, more] of [['made', 'wrong'], ['ghost', made.secret], ['made', made.secret, { username: 'chosen' }]]) {
    assert.deepEqual(await connect(user, password, more), { refused: 0x87 })
  }
})

test('another method is refused', async () => {
  const properties = { authenticationMethod: 'PLAIN', authenticationData: Buffer.from('x') }
  assert.deepEqual(await connect('made', made.secret, { properties }), { refused: 0x8c })
})
