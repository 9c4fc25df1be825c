// The MQTT client of the page. Its library is large, so it is loaded with the first connection.

import type { MqttClient } from 'mqtt'
import { Problem } from '../api/problem'
import { MessageLog, type Properties } from './log'
import { disconnectText, reasonText } from './reasons'

export type Status =
  | { kind: 'connecting' }
  | { kind: 'connected'; clientId: string; packetBytesMax: number }
  /** There is no connection; the page connects again after RECONNECT_MS. */
  | { kind: 'lost'; why: string }
  /** The API refused to issue credentials; trying again would not help. */
  | { kind: 'refused'; why: string }

/** Credentials of one connection. They expire soon, so each connection requests its own. */
export interface Pass {
  clientId: string
  username: string
  password: string
}

/** Properties of a message in MQTT 5.0. An undefined one is not sent. */
export interface PublishProperties {
  contentType?: string | undefined
  responseTopic?: string | undefined
  correlationData?: Uint8Array | undefined
  /** Seconds. */
  messageExpiryInterval?: number | undefined
  payloadFormatIndicator?: boolean | undefined
  userProperties?: Record<string, string[]> | undefined
}

interface PublishOptions {
  qos: 0 | 1 | 2
  retain: boolean
  properties: PublishProperties
}

/** The message that this page published last, until the broker delivers it to the page, too. */
interface Published {
  topic: string
  payload: Uint8Array
  /** Milliseconds of `performance.now()`. */
  sentAt: number
  onReceived: (ms: number) => void
}

const RECONNECT_MS = 2000
const CLOSED = 'The connection was closed.'

/** The connection ended before the acknowledgement of a message. */
export class Unacknowledged extends Error {}

/** The reason code of a CONNACK, PUBACK or SUBACK that the library made an error of. */
function codeOf(error: unknown): number | undefined {
  const { code } = error as { code?: unknown }
  return typeof code === 'number' ? code : undefined
}

/** Whether trying again would not help. A person whose session has ended signs in again without leaving the page, and a problem without a
 * kind is not of the API: a proxy may ask for a sign-in of its own. */
const isFinal = ({ status, kind, message }: Problem) =>
  kind !== '' && (status === 404 || (status === 403 && !message.includes('X-CSRF-Token')))

export class LiveClient {
  readonly log = new MessageLog()
  /** By filter, why the broker refused to subscribe this page to it. */
  refused: ReadonlyMap<string, string> = new Map()
  #status: Status = { kind: 'connecting' }
  #client: MqttClient | undefined
  #reconnect: ReturnType<typeof setTimeout> | undefined
  /** Counts openings and closings: what an earlier opening still waits for is then not used. */
  #generation = 0
  #listeners = new Set<() => void>()
  #filters = new Map<string, 0 | 1 | 2>()
  #published: Published | undefined

  status = () => this.#status

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Connects, and connects again when the connection is lost, until it is closed. */
  async open(url: string, newPass: () => Promise<Pass>) {
    const generation = ++this.#generation
    try {
      const [{ default: mqtt }, pass] = await Promise.all([import('mqtt'), newPass()])
      if (generation !== this.#generation) return
      this.#client = mqtt.connect(url, {
        ...pass,
        protocolVersion: 5,
        clean: true,
        keepalive: 30,
        // The library would connect again with the old pass, which has expired by then.
        reconnectPeriod: 0,
        resubscribe: false,
        // The other variants start a worker from a blob: URL, which the Content-Security-Policy refuses.
        timerVariant: 'native',
      })
      this.#listen(this.#client, pass.clientId, () => this.open(url, newPass))
    } catch (error) {
      if (generation !== this.#generation) return
      const problem = error instanceof Problem && !error.isOffline ? error : undefined
      if (problem && isFinal(problem)) return this.#set({ kind: 'refused', why: problem.message })
      this.#lost(problem?.message ?? 'The server does not answer.', () => this.open(url, newPass))
    }
  }

  #listen(client: MqttClient, clientId: string, open: () => void) {
    let why = CLOSED
    client.on('connect', ({ properties }) => {
      // A CONNACK without a maximum sets no limit.
      const packetBytesMax = properties?.maximumPacketSize ?? Number.POSITIVE_INFINITY
      this.#set({ kind: 'connected', clientId, packetBytesMax })
      for (const [filter, qos] of this.#filters) this.#subscribe(filter, qos)
    })
    client.on('message', (topic, payload, packet) => {
      const { qos, retain, properties } = packet
      this.#notePublished(topic, payload)
      this.log.add({ topic, payload, qos, retain, properties: properties as Properties | undefined })
    })
    client.on('error', (error) => {
      const code = codeOf(error)
      why =
        code === undefined
          ? 'The WebSocket listener does not answer.'
          : `The broker refuses this page: ${reasonText(code)}.`
    })
    client.on('disconnect', ({ reasonCode, properties }) => {
      why = disconnectText(reasonCode ?? 0, properties?.reasonString)
    })
    client.on('close', () => {
      if (client === this.#client) this.#lost(why, open)
    })
  }

  #lost(why: string, open: () => void) {
    this.#set({ kind: 'lost', why })
    clearTimeout(this.#reconnect)
    this.#reconnect = setTimeout(open, RECONNECT_MS)
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
    this.#client?.subscribe(filter, { qos }, (_error, _granted, suback) => {
      // Without a SUBACK the connection is gone, and the next one subscribes again.
      const code = Number(suback?.granted[0] ?? 0)
      const refused = new Map(this.refused)
      refused.delete(filter)
      if (code >= 128) refused.set(filter, reasonText(code))
      this.refused = refused
      this.#notify()
    })
  }

  /** Resolves with the milliseconds until the server's acknowledgement: PUBACK (QoS 1) or PUBCOMP (QoS 2), which mean that it has stored
   * the message for the sessions that wait for it. With QoS 0 there is none, so it resolves when the message is sent.
   * `onReceived` gets the milliseconds until the broker delivers the message to this page, if one of its filters matches. */
  async publish(
    topic: string,
    payload: Uint8Array,
    { properties, ...options }: PublishOptions,
    onReceived: (ms: number) => void,
  ): Promise<number> {
    const client = this.#client
    if (!client?.connected) throw new Error('The page is not connected.')
    const sentAt = performance.now()
    this.#published = { topic, payload, sentAt, onReceived }
    // The library writes each property that is there, also an undefined one.
    const set = Object.fromEntries(Object.entries(properties).filter(([, value]) => value !== undefined))
    let onClose = () => {}
    // The library keeps a message without an acknowledgement for a connection that this page never makes.
    const lost = new Promise<never>((_, reject) => {
      onClose = () => {
        const why = this.#status.kind === 'lost' ? this.#status.why : CLOSED
        reject(
          new Unacknowledged(`${why} The server may have the message: check before you publish it again.`),
        )
      }
      client.once('close', onClose)
    })
    try {
      // The library's types ask for Node's Buffer, but it accepts any bytes.
      const sent = client.publishAsync(topic, payload as Buffer, { ...options, properties: set })
      await Promise.race([sent, lost])
    } catch (error) {
      const code = codeOf(error)
      throw code === undefined ? error : new Error(`The broker refuses the message: ${reasonText(code)}.`)
    } finally {
      client.off('close', onClose)
    }
    return performance.now() - sentAt
  }

  #notePublished(topic: string, payload: Uint8Array) {
    const sent = this.#published
    if (!sent || topic !== sent.topic || payload.length !== sent.payload.length) return
    if (!payload.every((byte, at) => byte === sent.payload[at])) return
    this.#published = undefined
    sent.onReceived(performance.now() - sent.sentAt)
  }

  close() {
    this.#generation++
    clearTimeout(this.#reconnect)
    this.#client?.end(true)
    this.#client = undefined
  }

  #set(status: Status) {
    this.#status = status
    this.#notify()
  }

  #notify() {
    for (const listener of this.#listeners) listener()
  }
}
