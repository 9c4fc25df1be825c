// Size of a PUBLISH packet of MQTT 5.0 (section 3.3), so that the page sends none that the broker would close its connection for.

import type { PublishProperties } from './client'

const utf8 = new TextEncoder()
const bytesOf = (text: string) => utf8.encode(text).length
/** A string or binary data, with its length before it. */
const withLength = (bytes: number) => 2 + bytes

function variableByteInteger(value: number) {
  if (value < 128) return 1
  if (value < 16_384) return 2
  return value < 2_097_152 ? 3 : 4
}

function propertiesBytes(properties: PublishProperties) {
  const { contentType, responseTopic, correlationData, messageExpiryInterval, payloadFormatIndicator } =
    properties
  let bytes = 0
  for (const text of [contentType, responseTopic])
    if (text !== undefined) bytes += 1 + withLength(bytesOf(text))
  if (correlationData) bytes += 1 + withLength(correlationData.length)
  if (messageExpiryInterval !== undefined) bytes += 1 + 4
  if (payloadFormatIndicator !== undefined) bytes += 1 + 1
  for (const [name, values] of Object.entries(properties.userProperties ?? {}))
    for (const value of values) bytes += 1 + withLength(bytesOf(name)) + withLength(bytesOf(value))
  return bytes
}

interface Published {
  topic: string
  qos: 0 | 1 | 2
  payloadBytes: number
  properties: PublishProperties
}

export function publishBytes({ topic, qos, payloadBytes, properties }: Published) {
  const own = propertiesBytes(properties)
  const packetId = qos === 0 ? 0 : 2
  const remaining = withLength(bytesOf(topic)) + packetId + variableByteInteger(own) + own + payloadBytes
  return 1 + variableByteInteger(remaining) + remaining
}
