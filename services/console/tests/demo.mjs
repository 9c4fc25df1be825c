// A server with something on each page: devices, sessions, retained messages, refusals.

import { once } from 'node:events'
import { createServer } from 'node:http'
import mqtt from 'mqtt'
import { Api, Server, until } from './server.mjs'

const connect = (server, options) =>
  mqtt.connectAsync(`mqtt://127.0.0.1:${server.ports.mqtt}`, {
    protocolVersion: 5,
    reconnectPeriod: 0,
    ...options,
  })

/** `flags` are settings of the server beside its prices. */
export async function demo(flags = {}) {
  const server = await Server.make({
    price: 'messages_in=1000000,connected_session_minutes=20000',
    ...flags,
  })
  const api = new Api(server.url)
  const organisation = await api.signUp('Ann', server.link('/sign-up'))
  const at = `${organisation}/brokers/default`
  const clients = await devices(server)
  const tenant = await tenants(api, organisation, server)
  const strict = await strictService(api, `${organisation}/brokers/${tenant}`)
  const shown = await addresses(api, organisation, tenant)
  const timer = setInterval(() => traffic(clients), 200)
  const stop = async () => {
    clearInterval(timer)
    for (const client of clients) client.end(true)
    strict.closeAllConnections()
    strict.close()
    await server.stop()
  }
  return { server, api, organisation, tenant, shown, at, stop }
}

async function devices(server) {
  const away = await connect(server, {
    clientId: 'dashboard-1',
    clean: false,
    properties: { sessionExpiryInterval: 86_400 },
  })
  await away.subscribeAsync('plant/#', { qos: 1 })
  // The stored messages of this filter are not those of the traffic.
  await away.subscribeAsync('door/+', { qos: 1 })
  await away.endAsync()
  const printer = await connect(server, {
    clientId: 'printer-1',
    clean: false,
    properties: { sessionExpiryInterval: 86_400 },
  })
  await printer.subscribeAsync('$share/printers/plant/+/state', { qos: 1 })
  await printer.endAsync()
  const names = ['esp32-7', 'press-1', 'press-2', 'pump-1', 'pump-2', 'pump-7', 'gateway-north']
  const clients = []
  for (const clientId of names) {
    const client = await connect(server, { clientId, clean: true })
    await client.subscribeAsync([`down/${clientId}/#`, 'plant/all'])
    clients.push(client)
  }
  const [first] = clients
  for (const hall of [1, 2, 3]) {
    for (const what of ['state', 'temperature', 'pressure']) {
      const value = JSON.stringify({
        value: 20 + hall,
        unit: what === 'state' ? undefined : 'si',
        at: '12:00',
      })
      await first.publishAsync(`plant/hall-${hall}/${what}`, value, { qos: 1, retain: true })
    }
  }
  await first.publishAsync('firmware/esp32', Buffer.from([0x7f, 0x45, 0x4c, 0x46, 1, 2, 3, 0, 255]), {
    qos: 1,
    retain: true,
  })
  await first.publishAsync('door/1', '{"open":true}', { qos: 1 })
  await first.publishAsync('site', 'Millbrook works', { qos: 1, retain: true })
  return clients
}

/** A service that refuses each event for good, and a webhook with dead letters for it. */
async function strictService(api, at) {
  const service = createServer((request, response) => {
    request.resume()
    response.writeHead(422).end()
  }).listen(0, '127.0.0.1')
  await once(service, 'listening')
  const url = `http://127.0.0.1:${service.address().port}/hook`
  await api.put(`${at}/webhooks/billing`, { url, events: ['message'], filters: ['meter/+'] })
  await until('a dead letter', async () => {
    await api.post(`${at}/publish`, { topic: 'meter/7', payload: '{"kWh":12.4}', qos: 1 })
    return (await api.get(`${at}/webhooks/billing/dead-letters`)).items.length > 0
  })
  return service
}

/** Names of what drawers show, which are part of their addresses. */
async function addresses(api, organisation, tenant) {
  const at = `${organisation}/brokers`
  const [message] = (await api.get(`${at}/default/messages?topic=door%2F1`)).items
  const [delivery] = (await api.get(`${at}/${tenant}/webhooks/billing/deliveries`)).items
  const [letter] = (await api.get(`${at}/${tenant}/webhooks/billing/dead-letters`)).items
  const [entry] = (await api.get(`${organisation}/audit`)).items
  await api.ask('PATCH', '/me', { name: 'Ann' })
  const [own] = (await api.get('/me/audit')).items
  return {
    message: message.position,
    delivery: delivery.number,
    letter: letter.id,
    entry: entry.id,
    own: own.id ?? `${own.at_ms} ${own.action} ${own.target}`,
  }
}

function traffic(clients) {
  for (const [at, client] of clients.entries()) {
    const value = (20 + Math.sin(Date.now() / 5000 + at) * 3).toFixed(2)
    client.publish(`plant/line-${at}/temperature`, `{"celsius":${value},"ok":true}`, { qos: at % 2 })
  }
}

async function tenants(api, organisation, server) {
  const broker = await api.post(`${organisation}/brokers`, { display_name: 'Plant 7' })
  const at = `${organisation}/brokers/${broker.name}`
  const rules = [
    { effect: 'allow', action: 'publish', filter: 'up/%c/#' },
    { effect: 'allow', action: 'subscribe', filter: 'down/%c/#' },
    { effect: 'deny', action: 'all', filter: 'secret/#' },
  ]
  await api.put(`${at}/groups/pumps`, { rules })
  const made = await api.post(`${at}/credentials`, { user: 'pump-7', group: 'pumps' })
  await api.post(`${at}/credentials`, {
    user: 'backend',
    rules: [{ effect: 'allow', action: 'all', filter: '#' }],
  })
  await api.put(`${at}/bans/storm`, { address: '192.0.2.0/24', reason: 'reconnects all the time' })
  await api.put(`${at}/jwt-issuers/own`, {
    algorithms: ['HS256'],
    key: { kind: 'secret', secret: 'a secret of at least thirty-two bytes' },
    issuer: 'https://login.example.org',
  })
  await api.put(`${at}/webhooks/orders`, {
    url: 'http://127.0.0.1:9/hook',
    events: ['connect', 'message'],
    filters: ['up/+/alarm'],
  })
  await api.put(`${at}/spend-cap`, { monthly_micros: 25_000_000, action: 'stop' })
  await api.post(`${organisation}/invitations`, { email: 'bob@example.org', role: 'operator' })
  await api.post(`${organisation}/tokens`, { name: 'deployment', scopes: ['brokers:read', 'access:write'] })
  const pump = await connect(server, {
    clientId: 'pump-7',
    username: `${broker.name}/pump-7`,
    password: made.secret,
  })
  await pump.publishAsync('up/pump-7/alarm', '{"level":2}', { qos: 1 })
  await pump.publishAsync('secret/plan', 'x', { qos: 1 }).catch(() => {})
  await pump.subscribeAsync('secret/#').catch(() => {})
  await pump.endAsync()
  await connect(server, { clientId: 'pump-8', username: `${broker.name}/pump-7`, password: 'wrong' }).catch(
    () => {},
  )
  return broker.name
}
