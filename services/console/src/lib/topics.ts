// Topics and topic filters. The checks show a mistake before a form is sent; the server decides.

/** The server refuses longer ones (`TOPIC_BYTES_MAX`), although MQTT allows 65,535 bytes. */
const BYTES_MAX = 4_096
const bytesOf = (text: string) => new TextEncoder().encode(text).length

/** The text beside a form's field with a wrong topic filter; null when it is valid. */
export function filterProblem(filter: string): string | null {
  if (filter === '') return 'Enter a topic filter, such as plant/+/state or #.'
  if (bytesOf(filter) > BYTES_MAX) return 'A topic filter has at most 4,096 bytes.'
  const levels = filter.split('/')
  for (const [at, level] of levels.entries()) {
    if (level.includes('#') && (level !== '#' || at < levels.length - 1)) {
      return '# must stand alone in the last level, such as plant/#.'
    }
    if (level.includes('+') && level !== '+') return '+ must stand alone in its level, such as plant/+/state.'
  }
  return null
}

/** The text beside a form's field with a wrong topic; null when it is valid. */
export function topicProblem(topic: string): string | null {
  if (topic === '') return 'Enter a topic, such as plant/1/state.'
  if (/[#+]/.test(topic)) return 'You cannot publish to a topic with + or #.'
  if (bytesOf(topic) > BYTES_MAX) return 'A topic has at most 4,096 bytes.'
  return null
}

/** The topic whose levels a filter shows: `undefined` for all topics, `null` for a filter with other wildcards. */
export function branchOf(filter: string | undefined): string | undefined | null {
  if (filter === undefined || filter === '#') return undefined
  const branch = filter.endsWith('/#') ? filter.slice(0, -2) : filter
  return branch === filter || /[+#]/.test(branch) ? null : branch
}

/** A level of the tree of topics. */
export interface TopicNode<T> {
  level: string
  topic: string
  value: T | undefined
  children: Map<string, TopicNode<T>>
  /** Topics with a value, here and below. */
  count: number
}

export function treeOf<T extends { topic: string }>(rows: readonly T[]): TopicNode<T> {
  const root: TopicNode<T> = { level: '', topic: '', value: undefined, children: new Map(), count: 0 }
  for (const row of rows) {
    let node = root
    node.count += 1
    let topic = ''
    for (const [depth, level] of row.topic.split('/').entries()) {
      topic = depth === 0 ? level : `${topic}/${level}`
      let next = node.children.get(level)
      if (!next) {
        next = { level, topic, value: undefined, children: new Map(), count: 0 }
        node.children.set(level, next)
      }
      next.count += 1
      node = next
    }
    node.value = row
  }
  return root
}

/** Made once: a comparison that is given its options makes a new one each time. */
const byLevel = new Intl.Collator('en', { numeric: true }).compare

/** The rows of the open part of a tree, from top to bottom. A level without a value that has one child shares the child's row: "plant/1". */
export function rowsOf<T>(root: TopicNode<T>, isOpen: (topic: string) => boolean) {
  const rows: { node: TopicNode<T>; label: string; depth: number }[] = []
  const visit = (parent: TopicNode<T>, depth: number) => {
    const sorted = [...parent.children.values()].sort((a, b) => byLevel(a.level, b.level))
    for (let node of sorted) {
      let label = node.level
      while (node.value === undefined && node.children.size === 1) {
        const [child] = node.children.values()
        if (!child) break
        node = child
        label = `${label}/${child.level}`
      }
      rows.push({ node, label, depth })
      if (isOpen(node.topic)) visit(node, depth + 1)
    }
  }
  visit(root, 0)
  return rows
}

/** The last message of a topic that the page has seen. */
export interface SeenMessage {
  /** Arrival, in Unix milliseconds. */
  at: number
  qos: number
  /** Length of the payload. */
  bytes: number
  /** Null when it was too large to be kept. */
  payload: Uint8Array | null
}

/** A topic with a retained message, or one that the page has seen a message of. */
export interface KnownTopic {
  topic: string
  bytes: number
  isRetained: boolean
  seen: SeenMessage | undefined
}

/** Retained and seen topics, each once. */
export function knownTopics(
  retained: readonly { topic: string; payload_bytes: number }[],
  seen: ReadonlyMap<string, SeenMessage>,
): KnownTopic[] {
  const known = retained.map(
    ({ topic, payload_bytes }): KnownTopic => ({
      topic,
      bytes: payload_bytes,
      isRetained: true,
      seen: seen.get(topic),
    }),
  )
  const names = new Set(known.map(({ topic }) => topic))
  for (const [topic, message] of seen) {
    if (!names.has(topic)) known.push({ topic, bytes: message.bytes, isRetained: false, seen: message })
  }
  return known
}
