// mqtt.js: MQTT 3.1, 3.1.1 and 5.0 over TCP and WebSocket.

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { test } from 'node:test'

const mqtt = createRequire(`${process.env.NODE_CLIENTS}/`)('mqtt')
const { OPEN_PORT, OPEN_WS, GUARDED_PORT, GUARDED_WS } = process.env
const VERSIONS = { 3.1: 3, '3.1.1': 4, '5.0': 5 }
const MESSAGES = 1000
const MS_MAX = 20_000
const PAYLOADS = [Buffer.alloc(0), Buffer.from('hello'), Buffer.from(Array.from({ length: 256 }, (_, n) => n)), randomBytes(200 * 1024)]

const range = (from, to, step = 1) => Array.from({ length: Math.ceil((to - from) / step) }, (_, n) => from + n * step)
const numbers = (messages) => messages.map(({ payload }) => Number(payload.toString()))

async function soon(promise, what) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not in ${MS_MAX} ms: ${what}`)), MS_MAX)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

// A client that remembers what it got.
class Client {
  constructor(way, clientId, { guarded = false, durable = false, properties = {}, ...options } = {}) {
    const [version, transport] = way
    this.v5 = version === '5.0'
    if (durable && this.v5) properties = { sessionExpiryInterval: 600, ...properties }
    const url = transport === 'ws'
      ? `ws://127.0.0.1:${guarded ? GUARDED_WS : OPEN_WS}/mqtt`
      : `mqtt://127.0.0.1:${guarded ? GUARDED_PORT : OPEN_PORT}`
    this.messages = []
    this.waiting = []
    this.client = mqtt.connect(url, {
      clientId,
      protocolVersion: VERSIONS[version],
      protocolId: version === '3.1' ? 'MQIsdp' : 'MQTT',
      clean: !durable,
      reconnectPeriod: 0,
      ...(this.v5 ? { properties } : {}),
      ...options,
    })
    this.client.on('message', (topic, payload, packet) => {
      this.messages.push({ topic, payload, qos: packet.qos, retain: packet.retain, dup: packet.dup, properties: packet.properties })
      this.waiting.splice(0).forEach((wake) => wake())
    })
    this.client.on('error', () => {})
  }

  async connected() {
    const connack = once(this.client, 'connect')
    ;[this.connack] = await soon(connack, 'CONNACK')
    return this
  }

  // Sends DISCONNECT.
  close() {
    return soon(this.client.endAsync(), 'the end')
  }

  // Ends the TCP connection without DISCONNECT.
  async cut() {
    const closed = once(this.client, 'close')
    this.client.stream.destroy()
    await soon(closed, 'the cut')
  }

  async subscribe(topic, options = { qos: 2 }) {
    return (await soon(this.client.subscribeAsync(topic, options), 'SUBACK')).map(({ qos }) => qos)
  }

  // Waits for the acknowledgement.
  publish(topic, payload = 'x', options = { qos: 1 }) {
    return soon(this.client.publishAsync(topic, payload, options), 'the acknowledgement')
  }

  async take(count = 1) {
    await soon((async () => {
      while (this.messages.length < count) await new Promise((wake) => this.waiting.push(wake))
    })(), `${count} messages, ${this.messages.length} came`)
    return this.messages.splice(0, count)
  }

  async one() {
    return (await this.take())[0]
  }

  // All messages before the one that says that there are no more.
  async until(topic) {
    const got = []
    for (;;) {
      const message = await this.one()
      if (message.topic === topic) return got
      got.push(message)
    }
  }
}

const connect = (...how) => new Client(...how).connected()

// Every client of a test is ended with it.
function check(name, way, run) {
  test(`${way[0]} over ${way[1]}: ${name}`, { timeout: 60_000 }, async () => {
    const clients = []
    const open = async (id, options) => {
      const client = await connect(way, id, options)
      clients.push(client)
      return client
    }
    try {
      await run(open, `${way.join('/')}/${name}`)
    } finally {
      for (const { client } of clients) client.end(true)
    }
  })
}

function everywhere(way) {
  const v5 = way[0] === '5.0'

  check('payloads arrive as they were sent', way, async (open, p) => {
    const [sub, pub] = [await open('sub'), await open('pub')]
    assert.deepEqual(await sub.subscribe(`${p}/#`), [2])
    for (const qos of [0, 1, 2]) {
      for (const payload of PAYLOADS) await pub.publish(`${p}/é`, payload, { qos })
      const got = await sub.take(PAYLOADS.length)
      PAYLOADS.forEach((payload, n) => {
        assert(payload.equals(got[n].payload), `payload ${n} at QoS ${qos}`)
        assert.deepEqual([got[n].topic, got[n].qos, got[n].retain], [`${p}/é`, qos, false])
      })
    }
    await soon(sub.client.unsubscribeAsync(`${p}/#`), 'UNSUBACK')
    await sub.subscribe(`${p}/end`)
    await pub.publish(`${p}/é`)
    await pub.publish(`${p}/end`)
    assert.deepEqual(await sub.until(`${p}/end`), [])
  })

  check('retained messages are set, replaced and cleared', way, async (open, p) => {
    const pub = await open('pub')
    const news = async () => {
      const sub = await open('new')
      await sub.subscribe(`${p}/#`, { qos: 1 })
      await pub.publish(`${p}/end`)
      const got = await sub.until(`${p}/end`)
      await sub.close()
      return got.map(({ payload, retain }) => [payload.toString(), retain])
    }
    await pub.publish(`${p}/kept`, 'first', { qos: 1, retain: true })
    assert.deepEqual(await news(), [['first', true]])
    await pub.publish(`${p}/kept`, 'second', { qos: 2, retain: true })
    assert.deepEqual(await news(), [['second', true]])
    await pub.publish(`${p}/kept`, '', { qos: 1, retain: true })
    assert.deepEqual(await news(), [])
  })

  check('a will after a cut connection, none after DISCONNECT', way, async (open, p) => {
    const sub = await open('sub')
    await sub.subscribe(`${p}/#`)
    const will = { topic: `${p}/will`, payload: Buffer.from('gone'), qos: 1, retain: false }
    const mortal = await open('mortal', { will })
    await mortal.cut()
    assert.equal((await sub.one()).payload.toString(), 'gone')
    await (await open('mortal', { will })).close()
    // The same client id: that the broker answers says that it is done with the connection before.
    await (await open('mortal')).publish(`${p}/end`)
    assert.deepEqual(await sub.until(`${p}/end`), [])
  })

  check('members of a group take turns, also after one left', way, async (open, p) => {
    const members = [await open('a'), await open('b'), await open('c')]
    const pub = await open('pub')
    for (const member of members) await member.subscribe(`$share/group/${p}`, { qos: 1 })
    for (const n of range(0, 30)) await pub.publish(p, String(n))
    const got = await Promise.all(members.map((member) => member.take(10)))
    assert.deepEqual(numbers(got.flat()).sort((a, b) => a - b), range(0, 30))
    await members[0].close()
    for (const n of range(0, 20)) await pub.publish(p, String(n))
    const rest = await Promise.all(members.slice(1).map((member) => member.take(10)))
    assert.deepEqual(numbers(rest.flat()).sort((a, b) => a - b), range(0, 20))
  })

  check('a session waits for its client', way, async (open, p) => {
    const first = await open('sub', { durable: true })
    assert.equal(first.connack.sessionPresent, false)
    await first.subscribe(`${p}/#`)
    await first.cut()
    const pub = await open('pub')
    for (const n of range(0, 100)) await pub.publish(`${p}/x`, String(n), { qos: 1 + (n % 2) })
    const second = await open('sub', { durable: true })
    if (way[0] !== '3.1') assert.equal(second.connack.sessionPresent, true)
    await pub.publish(`${p}/end`, 'end', { qos: 2 })
    const got = await second.until(`${p}/end`)
    for (const qos of [1, 2]) assert.deepEqual(numbers(got.filter((m) => m.qos === qos)), range(qos - 1, 100, 2), `QoS ${qos}`)
    await second.close()
    assert.equal((await open('sub')).connack.sessionPresent, false)
  })

  check('its own reconnect finds the session', way, async (open, p) => {
    const pub = await open('pub')
    const sub = await open('sub', { durable: true, reconnectPeriod: 1, resubscribe: false })
    await sub.subscribe(`${p}/#`)
    for (const n of range(0, 5)) {
      const back = once(sub.client, 'connect')
      await sub.cut()
      for (const m of range(0, 10)) await pub.publish(p, String(n * 10 + m))
      await soon(back, 'the new connection')
      assert.deepEqual(numbers(await sub.take(10)), range(n * 10, n * 10 + 10))
    }
  })

  check(`${MESSAGES} messages in order at each QoS`, way, async (open, p) => {
    const [sub, one, two] = [await open('sub'), await open('one'), await open('two')]
    await sub.subscribe(`${p}/#`)
    for (const qos of [0, 1, 2]) {
      const sent = range(0, MESSAGES).flatMap((n) => [one, two].map((pub, at) => pub.publish(`${p}/${at}`, String(n), { qos })))
      const got = await sub.take(2 * MESSAGES)
      await Promise.all(sent)
      for (const at of [0, 1]) {
        assert.deepEqual(numbers(got.filter(({ topic }) => topic.endsWith(`/${at}`))), range(0, MESSAGES), `QoS ${qos}`)
      }
    }
  })

  check(`${MESSAGES} subscriptions of one client`, way, async (open, p) => {
    const [many, pub] = [await open('many'), await open('pub')]
    const topics = range(0, MESSAGES).map((n) => `${p}/${n}/x`)
    assert.deepEqual(await many.subscribe(topics, { qos: 1 }), topics.map(() => 1))
    const sent = topics.map((topic) => pub.publish(topic, topic))
    const got = await many.take(MESSAGES)
    await Promise.all(sent)
    assert.deepEqual(got.map(({ topic }) => topic).sort(), topics.slice().sort())
  })

  check('password and rules', way, async (open) => {
    for (const [username, password] of [['ann', 'wrong'], ['bob', 'right'], []]) {
      const refused = new Client(way, 'who', { guarded: true, username, password })
      const [error] = await soon(once(refused.client, 'error'), 'the refusal')
      assert([4, 5, 0x86, 0x87].includes(error.code), `${username}: ${error}`)
      refused.client.end(true)
    }
    const ann = await open('ann', { guarded: true, username: 'ann', password: 'right' })
    await ann.subscribe(['free/#', 'readonly/#'], { qos: 1 })
    for (const qos of [1, 2]) {
      if (v5) await assert.rejects(ann.publish('readonly/a', 'no', { qos }), { code: 0x87 })
      else await ann.publish('readonly/a', 'no', { qos })
    }
    await ann.publish('free/end')
    assert.deepEqual(await ann.until('free/end'), [])
  })
}

function onlyV5(way) {
  check('properties arrive as they were sent', way, async (open, p) => {
    const [sub, pub] = [await open('sub'), await open('pub')]
    await sub.subscribe(p, { qos: 1, properties: { subscriptionIdentifier: 42 } })
    const properties = {
      payloadFormatIndicator: true,
      contentType: 'text/plain',
      responseTopic: `${p}/answer`,
      correlationData: Buffer.from([0, 255]),
      userProperties: { a: ['1', '2'], b: '3' },
    }
    await pub.publish(p, 'x', { qos: 1, properties: { ...properties, messageExpiryInterval: 60 } })
    const got = { ...(await sub.one()).properties }
    const { subscriptionIdentifier, messageExpiryInterval, ...rest } = got
    rest.userProperties = { ...rest.userProperties }
    assert.deepEqual(rest, properties)
    assert.equal(subscriptionIdentifier, 42)
    assert(messageExpiryInterval > 50 && messageExpiryInterval <= 60)
  })

  check('a request gets its answer', way, async (open, p) => {
    const [server, asker] = [await open('server'), await open('asker')]
    await server.subscribe(`${p}/ask`)
    await asker.subscribe(`${p}/answer`)
    const correlationData = Buffer.from('7')
    await asker.publish(`${p}/ask`, '20 + 1', { qos: 1, properties: { responseTopic: `${p}/answer`, correlationData } })
    const ask = await server.one()
    await server.publish(ask.properties.responseTopic, '21', { qos: 1, properties: { correlationData: ask.properties.correlationData } })
    const answer = await asker.one()
    assert.deepEqual([answer.payload.toString(), answer.properties.correlationData], ['21', correlationData])
  })

  check('topic aliases both ways', way, async (open, p) => {
    const sub = await open('sub', { properties: { topicAliasMaximum: 10 } })
    const pub = await open('pub', { autoAssignTopicAlias: true })
    // Packets whose topic is an alias alone.
    const short = { received: 0, sent: 0 }
    sub.client.on('packetreceive', ({ cmd, topic }) => { if (cmd === 'publish' && topic === '') short.received += 1 })
    pub.client.on('packetsend', ({ cmd, topic }) => { if (cmd === 'publish' && topic === '') short.sent += 1 })
    await sub.subscribe(`${p}/#`)
    for (const qos of [0, 1, 2]) {
      for (const n of range(0, 30)) await pub.publish(`${p}/${n % 3}`, String(n), { qos })
      const got = await sub.take(30)
      assert.deepEqual(numbers(got), range(0, 30))
      // mqtt.js 5.16 looks aliases of QoS 2 messages up and then forgets what it found.
      for (const { topic, payload } of qos < 2 ? got : []) assert.equal(topic, `${p}/${Number(payload.toString()) % 3}`)
    }
    assert.deepEqual(short, { received: 87, sent: 87 })
  })

  check('receive maximum 1', way, async (open, p) => {
    const sub = await open('sub', { properties: { receiveMaximum: 1 } })
    const pub = await open('pub')
    let [open_, most] = [0, 0]
    sub.client.on('packetreceive', ({ cmd, qos }) => { if (cmd === 'publish' && qos > 0) most = Math.max(most, ++open_) })
    sub.client.on('packetsend', ({ cmd }) => { if (cmd === 'puback' || cmd === 'pubcomp') open_ -= 1 })
    await sub.subscribe(p)
    const sent = range(0, 100).map((n) => pub.publish(p, String(n), { qos: 1 + (n % 2) }))
    assert.deepEqual(numbers(await sub.take(100)), range(0, 100))
    await Promise.all(sent)
    assert.equal(most, 1)
  })

  check('messages and sessions expire', way, async (open, p) => {
    const sub = await open('sub', { durable: true, properties: { sessionExpiryInterval: 600 } })
    await sub.subscribe(`${p}/#`)
    await sub.cut()
    const [pub, watch] = [await open('pub'), await open('watch')]
    await watch.subscribe(`${p}/session`)
    await pub.publish(`${p}/short`, 'expires', { qos: 1, properties: { messageExpiryInterval: 1 } })
    await pub.publish(`${p}/long`, 'stays', { qos: 1, properties: { messageExpiryInterval: 60 } })
    // Its will comes when its session ends, two seconds after it went. By then the message has expired too: a message is
    // never dropped early, but up to a second late.
    const will = { topic: `${p}/session`, payload: Buffer.from('over'), qos: 1, retain: false, properties: { willDelayInterval: 600 } }
    const short = await open('short', { durable: true, will, properties: { sessionExpiryInterval: 2 } })
    await short.cut()
    assert.equal((await watch.one()).payload.toString(), 'over')
    assert.equal((await open('short', { durable: true })).connack.sessionPresent, false)
    const again = await open('sub', { durable: true })
    const got = await again.until(`${p}/session`)
    assert.deepEqual(got.map(({ payload }) => payload.toString()), ['stays'])
  })

  check('reason codes', way, async (open, p) => {
    const [sub, pub] = [await open('sub'), await open('pub')]
    const said = []
    pub.client.on('packetreceive', ({ cmd, reasonCode }) => { if (cmd === 'puback' || cmd === 'pubrec') said.push(reasonCode ?? 0) })
    for (const qos of [1, 2]) await pub.publish(`${p}/a`, 'x', { qos })
    await sub.subscribe(`${p}/#`)
    for (const qos of [1, 2]) await pub.publish(`${p}/a`, 'x', { qos })
    assert.deepEqual(said, [0x10, 0x10, 0, 0])
    const unsuback = await soon(sub.client.unsubscribeAsync([`${p}/#`, `${p}/never`]), 'UNSUBACK')
    assert.deepEqual([...unsuback.granted], [0, 0x11])
  })

  check('an assigned client id', way, async (open) => {
    const { properties } = (await open('')).connack
    assert(properties.assignedClientIdentifier)
  })

  check('a second connection takes over', way, async (open, p) => {
    const first = await open('same', { durable: true })
    await first.subscribe(p)
    const said = once(first.client, 'disconnect')
    const second = await open('same', { durable: true })
    assert.equal((await soon(said, 'DISCONNECT'))[0].reasonCode, 0x8e)
    assert.equal(second.connack.sessionPresent, true)
    await second.publish(p, 'mine')
    assert.equal((await second.one()).payload.toString(), 'mine')
  })

  check('maximum packet size', way, async (open, p) => {
    const sub = await open('sub', { properties: { maximumPacketSize: 1000 } })
    const pub = await open('pub')
    await sub.subscribe(`${p}/#`)
    for (const qos of [0, 1, 2]) await pub.publish(`${p}/large`, Buffer.alloc(1000), { qos })
    await pub.publish(`${p}/end`)
    assert.deepEqual(await sub.until(`${p}/end`), [])
    assert.equal(pub.connack.properties.maximumPacketSize, 1_048_576)
  })
}

for (const version of Object.keys(VERSIONS)) {
  for (const transport of ['tcp', 'ws']) {
    everywhere([version, transport])
    if (version === '5.0') onlyV5([version, transport])
  }
}
