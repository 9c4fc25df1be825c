// The flow that a person imports into Node-RED; Connect shows it among the snippets.

import { isAddress } from './host'
import { CA_FILE, hasOwnCa, type Target, TOPIC } from './snippetParts'

const FLOW = 'millrace-flow'
const BROKER = 'millrace-broker'
const TLS = 'millrace-tls'

/** A flow for Menu, Import: a button that publishes, and what comes back. */
export const nodeRed = (target: Target) => JSON.stringify(nodes(target), null, 2)

function nodes(target: Target) {
  const { host, port, tls, user, secret, clientId } = target
  const at = (x: number, y: number) => ({ z: FLOW, x, y })
  const out = { topic: '', qos: '1', retain: '', broker: BROKER, wires: [] }
  const button = { topic: TOPIC, payload: 'hi from Node-RED', payloadType: 'str', once: true, onceDelay: 2 }
  return [
    { id: FLOW, type: 'tab', label: 'Millrace' },
    {
      id: BROKER,
      type: 'mqtt-broker',
      name: 'Millrace',
      broker: host,
      port: String(port),
      clientid: clientId,
      autoConnect: true,
      usetls: tls,
      ...(tls && { tls: TLS }),
      protocolVersion: '5',
      keepalive: '60',
      cleansession: true,
      ...(user !== '' && { credentials: { user, password: secret } }),
    },
    ...(tls ? [trust(target)] : []),
    {
      id: 'millrace-say',
      type: 'inject',
      name: 'Say hi',
      ...at(140, 80),
      ...button,
      wires: [['millrace-out']],
    },
    { id: 'millrace-out', type: 'mqtt out', ...at(340, 80), ...out },
    {
      id: 'millrace-in',
      type: 'mqtt in',
      ...at(140, 160),
      topic: 'hello/#',
      qos: '1',
      datatype: 'utf8',
      broker: BROKER,
      wires: [['millrace-show']],
    },
    {
      id: 'millrace-show',
      type: 'debug',
      ...at(340, 160),
      active: true,
      tosidebar: true,
      console: true,
      complete: 'payload',
      wires: [],
    },
  ]
}

const trust = (target: Target) => ({
  id: TLS,
  type: 'tls-config',
  name: 'Millrace',
  verifyservercert: true,
  // TLS names no IP address there, and Node.js warns of one.
  ...(!isAddress(target.host) && { servername: target.host }),
  ...(hasOwnCa(target) && { caname: CA_FILE, credentials: { cadata: target.caPem } }),
})
