// The message that somebody writes in the form of the live view. The browser keeps it between visits, until its person signs out.

import { count } from '../lib/format'
import { fromHex } from '../lib/payload'
import { topicProblem } from '../lib/topics'
import type { PublishProperties } from './client'
import type { DraftStore } from './draftStore'
import { publishBytes } from './packetSize'

export type Kind = 'text' | 'json' | 'hex'

export interface Draft {
  topic: string
  payload: string
  kind: Kind
  qos: 0 | 1 | 2
  retain: boolean
  contentType: string
  responseTopic: string
  /** Text, or bytes in hexadecimal behind "0x". */
  correlationData: string
  /** Seconds; empty: the message does not expire. */
  expiry: string
  isMarkedText: boolean
  userProperties: readonly (readonly [name: string, value: string])[]
}

export const EMPTY: Draft = {
  topic: '',
  payload: '',
  kind: 'text',
  qos: 1,
  retain: false,
  contentType: '',
  responseTopic: '',
  correlationData: '',
  expiry: '',
  isMarkedText: false,
  userProperties: [],
}

/** MQTT has four bytes for it. */
const EXPIRY_S_MAX = 4_294_967_295
/** Strings and binary data of a property have at most as many bytes. */
const PROPERTY_BYTES_MAX = 65_535

const utf8 = new TextEncoder()

/** Bytes of "order 7" or "0x6f37"; null when the digits are no hexadecimal. */
export const correlationBytes = (text: string) =>
  /^0x/i.test(text) ? fromHex(text.slice(2)) : utf8.encode(text)

const payloadOf = ({ payload, kind }: Draft) => (kind === 'hex' ? fromHex(payload) : utf8.encode(payload))

/** Fields of a draft that the server or MQTT would refuse, with the reason. `packetBytesMax` is the Maximum Packet Size of the
 * broker's CONNACK. */
export function problemsOf(
  draft: Draft,
  packetBytesMax = Number.POSITIVE_INFINITY,
): Partial<Record<keyof Draft, string>> {
  const { topic, payload, kind, contentType, responseTopic, correlationData, expiry } = draft
  const found: Partial<Record<keyof Draft, string | null>> = {
    topic: topicProblem(topic),
    payload: payloadProblem(payload, kind),
    contentType: tooLong(contentType),
    responseTopic: responseTopic === '' ? null : topicProblem(responseTopic),
    correlationData:
      correlationBytes(correlationData) === null
        ? 'Enter pairs of hexadecimal digits after 0x, such as 0x6f37.'
        : tooLong(correlationData),
    expiry: expiryProblem(expiry),
    userProperties: draft.userProperties.flat().map(tooLong).find(Boolean) ?? null,
  }
  const problems = Object.fromEntries(Object.entries(found).filter(([, problem]) => problem !== null))
  if (Object.keys(problems).length > 0) return problems
  const tooLarge = sizeProblem(draft, packetBytesMax)
  return tooLarge === null ? {} : { payload: tooLarge }
}

/** The broker closes the connection of a client that sends a larger packet. */
function sizeProblem(draft: Draft, packetBytesMax: number): string | null {
  const { payload, properties } = messageOf(draft)
  const bytes = publishBytes({ ...draft, payloadBytes: payload.length, properties })
  if (bytes <= packetBytesMax) return null
  const over = count(bytes - packetBytesMax)
  return `The message has ${count(bytes)} bytes with its topic and properties, ${over} more than the ${count(packetBytesMax)} that this broker allows in a packet. Shorten it, or publish it in parts.`
}

function payloadProblem(payload: string, kind: Kind): string | null {
  if (kind === 'hex' && fromHex(payload) === null) return 'Enter pairs of hexadecimal digits, such as 68 69.'
  if (kind !== 'json') return null
  try {
    JSON.parse(payload)
    return null
  } catch {
    return 'This is not valid JSON. Choose Text to send it as it is.'
  }
}

const tooLong = (text: string) =>
  utf8.encode(text).length > PROPERTY_BYTES_MAX ? 'It has at most 65,535 bytes.' : null

function expiryProblem(expiry: string): string | null {
  if (expiry === '') return null
  const isWhole = /^\d+$/.test(expiry) && Number(expiry) <= EXPIRY_S_MAX
  return isWhole ? null : 'Enter whole seconds, at most 4,294,967,295.'
}

/** Payload and properties of a draft without problems. */
export function messageOf(draft: Draft): { payload: Uint8Array; properties: PublishProperties } {
  const { kind, contentType, responseTopic, correlationData, expiry, isMarkedText } = draft
  const named = draft.userProperties.filter(([name]) => name !== '')
  const properties: PublishProperties = {
    contentType: contentType || (kind === 'json' ? 'application/json' : undefined),
    responseTopic: responseTopic || undefined,
    correlationData: correlationData === '' ? undefined : (correlationBytes(correlationData) ?? undefined),
    messageExpiryInterval: expiry === '' ? undefined : Number(expiry),
    payloadFormatIndicator: (isMarkedText && kind !== 'hex') || undefined,
    userProperties: named.length > 0 ? valuesOf(named) : undefined,
  }
  return { payload: payloadOf(draft) ?? new Uint8Array(), properties }
}

/** MQTT allows a name several times. */
function valuesOf(properties: Draft['userProperties']): Record<string, string[]> {
  const values = new Map<string, string[]>()
  for (const [name, value] of properties) values.set(name, [...(values.get(name) ?? []), value])
  return Object.fromEntries(values)
}

/** Properties that the form shows without being asked, because one of them is set. */
export const hasProperties = (draft: Draft) =>
  draft.userProperties.length > 0 ||
  draft.isMarkedText ||
  [draft.contentType, draft.responseTopic, draft.correlationData, draft.expiry].some((text) => text !== '')

/** A longer draft, such as a pasted file, is not stored. */
const CHARS_MAX = 65_536

/** The draft under a name of `draftName`. Anything unreadable counts as none. */
export function readDraft(store: DraftStore | null, name: string): Draft {
  let found: unknown
  try {
    found = JSON.parse(store?.getItem(name) ?? 'null')
  } catch {
    return EMPTY
  }
  return isDraft(found) ? found : EMPTY
}

function isDraft(found: unknown): found is Draft {
  if (typeof found !== 'object' || found === null) return false
  const draft = found as Record<string, unknown>
  const isPair = (pair: unknown) =>
    Array.isArray(pair) && pair.length === 2 && pair.every((text) => typeof text === 'string')
  return (
    Object.entries(EMPTY).every(([name, value]) => typeof draft[name] === typeof value) &&
    ['text', 'json', 'hex'].includes(draft.kind as string) &&
    [0, 1, 2].includes(draft.qos as number) &&
    Array.isArray(draft.userProperties) &&
    draft.userProperties.every(isPair)
  )
}

export function writeDraft(store: DraftStore | null, name: string, draft: Draft) {
  const text = JSON.stringify(draft)
  try {
    if (text === JSON.stringify(EMPTY) || text.length > CHARS_MAX) store?.removeItem(name)
    else store?.setItem(name, text)
  } catch {
    // The storage is full: the form begins empty at the next visit.
  }
}
