// The packets of one client, as the server traces them.

export interface TracedFilter {
  filter?: string
  qos?: number
  reason_code?: number
}

export interface Traced {
  at_ms: number
  direction: 'in' | 'out' | 'server'
  kind: string
  bytes?: number
  packet_id?: number
  topic?: string
  qos?: number
  retain?: boolean
  dup?: boolean
  payload_bytes?: number
  session_present?: boolean
  reason_code?: number
  reason?: string
  filters?: TracedFilter[]
  more_filters?: number
  messages?: number
  connect?: {
    user: string | null
    address: string | null
    protocol: string
    keep_alive_s: number
    clean_start: boolean
    will_topic: string | null
  }
}

export interface TracedRow extends Traced {
  id: number
}

export interface TraceView {
  /** Newest first. */
  rows: readonly TracedRow[]
  /** Events that the server left out. */
  leftOut: number
  /** Older events that the page has dropped. */
  forgotten: number
  isPaused: boolean
  /** Events that came since the pause. */
  missed: number
}

/** Events that are kept. The server cuts texts off, so they take a few megabytes at most. */
export const TRACED_MAX = 5000
/** Interval of showing new rows. */
const FLUSH_MS = 100

const NOTHING: TraceView = { rows: [], leftOut: 0, forgotten: 0, isPaused: false, missed: 0 }

export class TraceLog {
  #view = NOTHING
  #arrived: TracedRow[] = []
  #ids = 0
  #leftOut = 0
  #missed = 0
  #timer: ReturnType<typeof setTimeout> | undefined
  #listeners = new Set<() => void>()

  read = () => this.#view

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  add(event: Traced) {
    if (this.#view.isPaused) {
      this.#missed += 1
    } else {
      this.#ids += 1
      this.#arrived.push({ ...event, id: this.#ids })
    }
    this.#timer ??= setTimeout(this.flush, FLUSH_MS)
  }

  leaveOut(events: number) {
    this.#leftOut += events
    this.#timer ??= setTimeout(this.flush, FLUSH_MS)
  }

  pause(isPaused: boolean) {
    this.flush()
    this.#missed = 0
    this.#set({ isPaused, missed: 0 })
  }

  clear() {
    this.#arrived = []
    this.#leftOut = 0
    this.#missed = 0
    this.#set({ ...NOTHING, isPaused: this.#view.isPaused })
  }

  /** Brings what has come into the view. */
  flush = () => {
    clearTimeout(this.#timer)
    this.#timer = undefined
    const all = this.#arrived.length > 0 ? [...this.#arrived.reverse(), ...this.#view.rows] : this.#view.rows
    this.#arrived = []
    const forgotten = this.#view.forgotten + Math.max(0, all.length - TRACED_MAX)
    this.#set({ rows: all.slice(0, TRACED_MAX), leftOut: this.#leftOut, missed: this.#missed, forgotten })
  }

  #set(change: Partial<TraceView>) {
    this.#view = { ...this.#view, ...change }
    for (const listener of this.#listeners) listener()
  }
}

/** Groups of events, for the filter. */
export const TRACED_GROUPS = [
  { value: 'all', label: 'All packets' },
  { value: 'connection', label: 'Connection' },
  { value: 'subscriptions', label: 'Subscriptions' },
  { value: 'messages', label: 'Messages' },
  { value: 'problems', label: 'Refused and dropped' },
] as const

export type TracedGroup = (typeof TRACED_GROUPS)[number]['value']

const CONNECTION = new Set([
  'CONNECT',
  'CONNACK',
  'AUTH',
  'DISCONNECT',
  'PINGREQ',
  'PINGRESP',
  'refused',
  'closed',
])
const SUBSCRIPTIONS = new Set(['SUBSCRIBE', 'SUBACK', 'UNSUBSCRIBE', 'UNSUBACK'])
const MESSAGES = new Set(['PUBLISH', 'PUBACK', 'PUBREC', 'PUBREL', 'PUBCOMP', 'dropped'])

/** Reason codes from here on are failures (MQTT 5.0 section 2.4). */
const FAILURE = 0x80

/** In a CONNACK of MQTT 3.1.1, each code but 0 is a refusal. */
export const isProblem = ({ kind, connect, reason_code = 0, filters = [], direction }: Traced) =>
  kind === 'refused' ||
  kind === 'dropped' ||
  (!connect && direction !== 'in' && kind === 'CONNACK' ? reason_code !== 0 : reason_code >= FAILURE) ||
  filters.some(({ reason_code = 0 }) => reason_code >= FAILURE)

export function isInGroup(event: Traced, group: TracedGroup): boolean {
  switch (group) {
    case 'all':
      return true
    case 'connection':
      return CONNECTION.has(event.kind)
    case 'subscriptions':
      return SUBSCRIPTIONS.has(event.kind)
    case 'messages':
      return MESSAGES.has(event.kind)
    case 'problems':
      return isProblem(event)
  }
}

const filterText = ({ filter, qos, reason_code }: TracedFilter) =>
  [
    filter ?? 'a filter that came before the trace',
    qos === undefined ? '' : ` QoS ${qos}`,
    reason_code === undefined
      ? ''
      : ` → ${reason_code >= FAILURE ? `refused (${reason_code})` : reason_code}`,
  ].join('')

/** The contents of a packet in one line. */
export function tracedText(event: Traced): string {
  const { connect, filters = [], more_filters, messages } = event
  const parts = [
    connect &&
      `MQTT ${connect.protocol}, user ${connect.user ?? 'none'}, keep alive ${connect.keep_alive_s} s, ${
        connect.clean_start ? 'clean start' : 'session continues'
      }${connect.address === null ? '' : `, from ${connect.address}`}`,
    connect?.will_topic && `will on ${connect.will_topic}`,
    event.topic,
    event.kind === 'PUBLISH' && event.topic === undefined && 'a topic alias from before the trace',
    event.qos !== undefined && `QoS ${event.qos}`,
    event.retain && 'retained',
    event.dup && 'again',
    ...filters.map(filterText),
    more_filters && `and ${more_filters} more`,
    event.packet_id !== undefined && `packet ${event.packet_id}`,
    messages !== undefined && messages > 1 && `${messages} messages`,
    event.session_present && 'session present',
    event.reason,
  ]
  return parts.filter(Boolean).join(', ')
}
