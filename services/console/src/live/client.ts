// The MQTT client of the page. Its library is loaded with the first connection.

import type { IClientOptions, IClientPublishOptions, MqttClient } from 'mqtt'
import { MessageLog, type Properties } from './log'

export type Status =
  | { kind: 'connecting' }
  | { kind: 'connected'; clientId: string }
  /** The connection was lost; it is tried again. */
  | { kind: 'lost'; why: string }
  /** The server does not let this client in; trying again would not help. */
  | { kind: 'refused'; why: string; needsCredential: boolean }

export interface Login {
  username: string
  password: string
}

const REASONS: Record<number, string> = {
  1: 'the protocol version is not accepted',
  4: 'the user name or the password is wrong',
  5: 'not authorized',
  128: 'an unspecified error',
  133: 'the client id is not valid',
  134: 'the user name or the password is wrong',
  135: 'not authorized',
  136: 'the server is unavailable',
  137: 'the server is busy',
  138: 'banned',
  151: 'a quota is used up',
  159: 'too many connections a second',
}
const NEEDS_CREDENTIAL = new Set([4, 5, 134, 135])
const AGAIN_MS = 2000

export class LiveClient {
  readonly log = new MessageLog()
  #status: Status = { kind: 'connecting' }
  #client: MqttClient | undefined
  #isOver = false
  #listeners = new Set<() => void>()
  #filters = new Map<string, 0 | 1 | 2>()
  /** Why a filter was not subscribed to. */
  refused: ReadonlyMap<string, string> = new Map()

  status = () => this.#status

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  async open(url: string, login: Login | undefined) {
    const { default: mqtt } = await import('mqtt')
    if (this.#isOver) return
    const clientId = `console-${crypto.randomUUID().slice(0, 8)}`
    const options: IClientOptions = {
      clientId,
      protocolVersion: 5,
      clean: true,
      keepalive: 30,
      reconnectPeriod: AGAIN_MS,
      resubscribe: false,
      // The other variants make a worker of a blob: URL, which the Content-Security-Policy refuses.
      timerVariant: 'native',
      ...login,
    }
    const client = mqtt.connect(url, options)
    this.#client = client
    client.on('connect', () => {
      this.#set({ kind: 'connected', clientId })
      for (const [filter, qos] of this.#filters) this.#subscribe(filter, qos)
    })
    client.on('message', (topic, payload, packet) => {
      const { qos, retain, properties } = packet
      this.log.add({ topic, payload, qos, retain, properties: properties as Properties | undefined })
    })
    client.on('error', (error) => this.#failed(error))
    client.on('close', () => {
      if (this.#status.kind === 'connected') this.#set({ kind: 'lost', why: 'The connection was closed.' })
    })
  }

  #failed(error: Error & { code?: unknown }) {
    const code = typeof error.code === 'number' ? error.code : undefined
    if (code === undefined) return this.#set({ kind: 'lost', why: 'The WebSocket listener does not answer.' })
    const why = `The broker refuses this page: ${REASONS[code] ?? `reason code ${code}`}.`
    this.#client?.end(true)
    this.#set({ kind: 'refused', why, needsCredential: NEEDS_CREDENTIAL.has(code) })
  }

  /** Subscribes to exactly these filters. */
  setFilters(filters: readonly string[], qos: 0 | 1 | 2) {
    const wanted = new Set(filters)
    for (const filter of [...this.#filters.keys()]) {
      if (wanted.has(filter) && this.#filters.get(filter) === qos) continue
      this.#filters.delete(filter)
      if (!wanted.has(filter)) this.#client?.unsubscribe(filter)
    }
    for (const filter of wanted) {
      if (this.#filters.has(filter)) continue
      this.#filters.set(filter, qos)
      if (this.#client?.connected) this.#subscribe(filter, qos)
    }
    this.refused = new Map([...this.refused].filter(([filter]) => wanted.has(filter)))
  }

  #subscribe(filter: string, qos: 0 | 1 | 2) {
    this.#client?.subscribe(filter, { qos }, (error, granted) => {
      const code = granted?.find((one) => one.topic === filter)?.qos ?? 0
      const isRefused = Boolean(error) || code >= 128
      const refused = new Map(this.refused)
      refused.delete(filter)
      if (isRefused) refused.set(filter, REASONS[code] ?? 'not authorized')
      this.refused = refused
      this.#tell()
    })
  }

  /** Resolves with the acknowledgement: PUBACK means stored. */
  async publish(topic: string, payload: Uint8Array, options: IClientPublishOptions) {
    const client = this.#client
    if (!client?.connected) throw new Error('The page is not connected.')
    // Its types ask for Node's Buffer; bytes are all that it uses of one.
    await client.publishAsync(topic, payload as Buffer, options)
  }

  close() {
    this.#isOver = true
    this.#client?.end(true)
  }

  #set(status: Status) {
    this.#status = status
    this.#tell()
  }

  #tell() {
    for (const listener of this.#listeners) listener()
  }
}
