// Texts for the reason codes that the page's own MQTT connection may get.

// 4 and 5 are return codes of MQTT 3.1.1, the others reason codes of 5.0.
const REASONS: Record<number, string> = {
  4: 'the user name or the password is wrong',
  5: 'not authorized',
  128: 'an unspecified error',
  129: 'a packet was malformed',
  130: 'a packet violated the protocol',
  131: 'the server does not accept it',
  132: 'the server does not speak MQTT 5.0',
  133: 'the client id is not valid',
  134: 'the user name or the password is wrong',
  135: 'not authorized',
  136: 'the server is unavailable',
  137: 'the server is busy',
  138: 'banned',
  139: 'the server is shutting down',
  141: 'it received nothing from this page for too long',
  142: 'another client took its client id',
  143: 'the topic filter is not valid',
  144: 'the topic is not valid',
  147: 'too many messages wait for their acknowledgement',
  149: 'a packet was larger than the broker allows',
  150: 'too many messages a second',
  151: 'a quota is used up',
  152: 'somebody disconnected it',
  153: 'the payload is not valid UTF-8',
  154: 'the broker does not support retained messages',
  155: 'the broker does not support this QoS',
  156: 'the broker has moved for now',
  157: 'the broker has moved',
  158: 'the broker does not support shared subscriptions',
  159: 'too many connections a second',
  160: 'the maximum connection time was reached',
  161: 'the broker does not support subscription identifiers',
  162: 'the broker does not support wildcards',
}

export const reasonText = (code: number) => REASONS[code] ?? `reason code ${code}`

/** `text` is the server's Reason String, shown only for a code that is unknown here. */
export function disconnectText(code: number, text: string | undefined) {
  const why = REASONS[code] ?? (text || `reason code ${code}`)
  return `The broker closed the connection: ${why}.`
}
