/** MQTT clients for k6: `import { Client, Flow } from 'k6/x/mqtt'`. */
declare module 'k6/x/mqtt' {
  type QoS = 0 | 1 | 2

  /** Why something did not work; also the tag "reason" of the metric mqtt_errors. */
  type Reason =
    | 'invalid_argument' | 'not_connected' | 'ended' | 'network' | 'timeout' | 'refused' | 'connection_lost' | 'server_disconnect'

  /** Rejected promises and constructors give this error. */
  interface MQTTError extends Error {
    name: 'MQTTError'
    reason: Reason
    /** Reason code of the broker's packet (0x87 is "not authorized"), 0 when there was none. */
    reasonCode: number
  }

  interface Will {
    topic: string
    payload?: string | ArrayBuffer
    qos?: QoS
    retain?: boolean
    /** Version 5. */
    delaySeconds?: number
  }

  interface TLS {
    /** Authorities to trust, PEM: open('ca.pem'). */
    ca?: string
    /** Certificate and key of this client, PEM. */
    cert?: string
    key?: string
    serverName?: string
    alpn?: string[]
    insecureSkipVerify?: boolean
  }

  interface ClientSettings {
    /** mqtt://, mqtts://, ws:// or wss://, a host, and a port unless it is the usual one. */
    url: string
    /** Left out: the broker assigns one. */
    clientId?: string
    /** Default 5. */
    version?: 5 | '5.0' | 4 | '3.1.1'
    username?: string
    password?: string | ArrayBuffer
    /** False continues with the session of the client id; default true. */
    cleanStart?: boolean
    /** Version 5: how long the session outlives the connection; default 0. */
    sessionExpirySeconds?: number
    /** Default 60; 0 turns it off. */
    keepAliveSeconds?: number
    /** Version 5: messages of QoS 1 and 2 that the broker may send without an acknowledgement; default 1000. */
    receiveMaximum?: number
    /** Longest wait for each answer of the broker; default 10. */
    timeoutSeconds?: number
    will?: Will
    /** For mqtts and wss. */
    tls?: TLS
    /** HTTP headers of ws and wss. */
    headers?: Record<string, string>
    /** Tags of all samples of this client. */
    tags?: Record<string, string>
  }

  interface PublishOptions {
    qos?: QoS
    retain?: boolean
    /** The rest is of version 5. */
    expirySeconds?: number
    contentType?: string
    responseTopic?: string
    correlationData?: string | ArrayBuffer
    userProperties?: Record<string, string>
  }

  interface SubscribeOptions {
    qos?: QoS
    /** The rest is of version 5. */
    noLocal?: boolean
    retainAsPublished?: boolean
    retainHandling?: 0 | 1 | 2
  }

  interface Subscription extends SubscribeOptions {
    /** A shared one is $share/NAME/FILTER. */
    filter: string
  }

  interface Message {
    topic: string
    payload: ArrayBuffer
    qos: QoS
    retain: boolean
    duplicate: boolean
    contentType: string
    responseTopic: string
    correlationData: ArrayBuffer
    userProperties: Record<string, string>
    text(): string
    json(): unknown
  }

  /**
   * One device. While it is connected the iteration continues, as with a WebSocket, so end() or drop() it. It belongs to the
   * iteration: when that is interrupted, the connection is cut.
   */
  class Client {
    constructor(settings: string | ClientSettings)
    on(event: 'message', callback: (message: Message) => void): void
    /** The connection was lost; not called after end() and drop(). */
    on(event: 'close', callback: (error: MQTTError) => void): void
    connect(): Promise<{ sessionPresent: boolean; clientId: string }>
    connected(): boolean
    /** Resolves at PUBACK or PUBCOMP; with QoS 0 when the message is written. Messages keep their order. */
    publish(topic: string, payload?: string | ArrayBuffer, options?: PublishOptions): Promise<void>
    subscribe(filter: string, options?: SubscribeOptions): Promise<void>
    subscribe(subscriptions: Subscription[]): Promise<void>
    unsubscribe(...filters: string[]): Promise<void>
    /** Sends DISCONNECT once everything published is written. */
    end(): Promise<void>
    /** Cuts the connection without DISCONNECT: the broker publishes the will. */
    drop(): void
  }

  interface FlowPublish {
    topic: string
    qos?: QoS
    /** Bytes of each payload, at least 28; default 100. */
    size?: number
    /** Ends the publishing after `count` messages, or after `seconds`; one of both is needed. */
    count?: number
    seconds?: number
    /** Messages a second; by default as fast as `window` and `ahead` allow. */
    rate?: number
    /** Messages that are not acknowledged (QoS 1, 2) or not written (QoS 0) yet; 1 by default, at most 1024. */
    window?: number
    /** Messages that the slowest receiver may lack; unlimited by default. */
    ahead?: number
    /** Name of the source; by default the client's id. */
    publisher?: string
  }

  interface Verdict {
    sent: number
    /** Messages acknowledged (QoS 0: written), counted once for each audience that must receive them. */
    expected: number
    received: number
    lost: number
    repeated: number
    outOfOrder: number
    /** Messages that an audience received although their publisher is not in its `from`. */
    stray: number
    /** Milliseconds from publish to receipt, within an eighth. */
    p50: number
    p99: number
  }

  /**
   * Messages whose delivery is checked. All VUs of the process that name the same flow share it: some publish, some
   * receive. It counts in Go, without a turn of the event loop for each message.
   */
  class Flow {
    constructor(name: string)
    /**
     * Counts this client's messages of the flow; call it before connect(). Each audience must get each message once.
     * The members of a shared subscription name the same audience; the default is the client's id. `from` names the
     * publishers whose messages the client must receive; the default is all of them.
     */
    receive(client: Client, options?: { audience?: string; from?: string[] }): void
    /** Announces that `count` receivers have subscribed; 1 by default. */
    arrive(count?: number): void
    /** Resolves when `receivers` receivers have arrived. */
    ready(options?: { receivers?: number; timeoutSeconds?: number }): Promise<void>
    publish(client: Client, options: FlowPublish): Promise<{
      sent: number; acknowledged: number; failed: number
      /** The receivers did not catch up in 5 seconds, so it stopped. */
      stalled: boolean
      /** The last error of a message. */
      error: string
    }>
    /** Resolves when `publishers` publishers have finished, and nothing is missing or nothing has come for quietSeconds (5). */
    complete(options?: { publishers?: number; timeoutSeconds?: number; quietSeconds?: number }): Promise<void>
    /** In teardown(), once: adds the counts to the metrics. */
    verdict(): Verdict
  }
}
