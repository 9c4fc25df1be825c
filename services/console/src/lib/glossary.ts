/** Explanations of terms of MQTT and of this service, for newcomers. */
export const GLOSSARY = {
  acknowledgedCommits:
    'Before the server acknowledges messages, it writes their commit to the disk and records the number of the commit. When it starts, it checks that every commit up to that number is on the disk, and otherwise stops with an error. After a power loss the recorded number may lag behind the last acknowledgement.',
  backlog:
    'Messages in the store. A message counts once for each filter that stores it. If several sessions share a filter, its messages may stay after all sessions have acknowledged them.',
  byteHours: 'One byte that is stored for one hour is one byte-hour. 1 MiB for a day is 25.2M byte-hours.',
  connectedSession: 'A session counts for each minute in which its client is connected.',
  connections:
    'Clients that are connected now, over TCP, TLS or WebSocket. The count, the trend and the chart include pages of this console, which connect as clients; the line below says how many.',
  deadLetter:
    'An event that your service rejected with a final status, such as 400, or did not accept for a day. It stays until you send it again or remove it.',
  delivered:
    'Messages that the server has sent to subscribers. One published message counts for each of them.',
  dropped: 'Messages that a receiver did not get, because a queue was full or a limit was reached.',
  filter: 'A topic with wildcards: + stands for one level, # for all further levels.',
  puback: 'The server answers a QoS 1 message with a PUBACK after the message is on the disk.',
  published: 'Messages that clients have sent to the broker.',
  qos: 'QoS 0: sent at most once. QoS 1: repeated until acknowledged. QoS 2: delivered exactly once.',
  retained:
    'The last message of a topic that was published with the retain flag. A new subscription gets it at once.',
  session:
    'The subscriptions of a client and the messages that wait for it. A session with an expiry outlives its connection.',
  stream:
    'The stored messages of one topic filter, in the order of their commits. All sessions with this filter share them. A shared subscription has a stream of its own.',
  topic: 'A name with levels between slashes, such as plant/7/pump. Each message is published to one topic.',
  waiting:
    'Stored messages that a session has not acknowledged. A message that waits for two sessions counts twice here, and once in the stored messages.',
  unit: 'Each started 4 KiB of a message counts as one.',
} as const

export type TermName = keyof typeof GLOSSARY

/**
 * Verbs with which buttons begin that change something. Console, command line and docs use the same ones: a token is revoked, a session
 * or a retained message cleared, a client disconnected. Something new is created; an item of a list of settings is added.
 */
export const VERBS = [
  'Add',
  'Ban',
  'Change',
  'Clear',
  'Create',
  'Delete',
  'Disconnect',
  'Drain',
  'Invite',
  'Leave',
  'Remove',
  'Rename',
  'Resume',
  'Revoke',
  'Rotate',
  'Save',
  'Send',
  'Set',
  'Suspend',
  'Test',
  'Turn',
  'Use',
  'Withdraw',
] as const
