/** For whom the server stores messages: the filter of sessions, or of a webhook. */
export interface Storing {
  filter: string
  webhook?: string
}

/** The queue of a webhook is a group whose name begins with `#`, which no client can join. */
export function storing(filter: string): Storing {
  const [, webhook, own] = /^\$share\/#([^/]+)\/(.+)$/s.exec(filter) ?? []
  return webhook && own ? { filter: own, webhook } : { filter }
}
