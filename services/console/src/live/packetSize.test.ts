import { generate } from 'mqtt-packet'
import { expect, test } from 'vitest'
import type { PublishProperties } from './client'
import { publishBytes } from './packetSize'

const ALL: PublishProperties = {
  contentType: 'text/plain',
  responseTopic: 'plant/1/größe',
  correlationData: Buffer.of(1, 2, 3),
  messageExpiryInterval: 60,
  payloadFormatIndicator: true,
  userProperties: { unit: ['C', 'F'], long: ['x'.repeat(200)] },
}

test.each<[string, 0 | 1 | 2, number, PublishProperties]>([
  ['a', 0, 0, {}],
  ['plant/ß', 1, 124, {}],
  ['plant/1', 2, 16_400, ALL],
  ['plant/1', 1, 2_097_152, ALL],
])(
  'the size of a message to %s with QoS %i and %i bytes is that of its packet',
  (topic, qos, payloadBytes, properties) => {
    const packet = generate(
      {
        cmd: 'publish',
        topic,
        qos,
        retain: false,
        dup: false,
        messageId: qos === 0 ? undefined : 7,
        payload: Buffer.alloc(payloadBytes),
        properties: properties as never,
      },
      { protocolVersion: 5 },
    )
    expect(publishBytes({ topic, qos, payloadBytes, properties })).toBe(packet.length)
  },
)
