// Texts for the reason codes that the page's own MQTT connection may get.

// 4 and 5 are return codes of MQTT 3.1.1, the others reason codes of 5.0.
const REASONS: Record<number, string> = {
  4: 'the user name or the password is wrong',
  5: 'not authorized',
  128: 'an unspecified error',
  129: 'a packet was malformed',
  130: 'a packet was against the protocol',
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
  149: 'a packet was larger than the broker takes',
  150: 'too many messages a second',
  151: 'a quota is used up',
  152: 'somebody disconnected it',
  153: 'the payload is no UTF-8 text',
  154: 'the broker takes no retained messages',
  155: 'the broker does not take this QoS',
  156: 'the broker has moved for now',
  157: 'the broker has moved',
  158: 'the broker takes no shared subscriptions',
  159: 'too many connections a second',
  160: 'the time of this connection is over',
  161: 'the broker takes no subscription identifiers',
  162: 'the broker takes no wildcards',
}

export const reasonSaid = (code: number) => REASONS[code] ?? `reason code ${code}`

/** `text` is the Reason String, in which a server may say more than the code does. */
export function disconnectSaid(code: number, text: string | undefined) {
  const why = REASONS[code] ?? (text || `reason code ${code}`)
  return `The broker closed the connection: ${why}.`
}
