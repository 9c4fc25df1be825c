// Where drafts of messages are: the local storage of the browser, under a name for each person and broker.

export type DraftStore = Pick<Storage, 'getItem' | 'setItem' | 'removeItem' | 'key' | 'length'>

const PREFIX = 'millrace.draft '

export const draftName = (user: string, broker: string) => `${PREFIX}${user} ${broker}`

/** Null where the browser keeps nothing for this site. */
export function draftStore(): DraftStore | null {
  try {
    return window.localStorage
  } catch {
    return null
  }
}

/** Removes the drafts of all people, or of all but the person `but`, who signs in. */
export function forgetDrafts(store: DraftStore | null, but?: string) {
  if (!store) return
  const names = Array.from({ length: store.length }, (_, at) => store.key(at) ?? '')
  const stays = but && draftName(but, '')
  for (const name of names) {
    if (name.startsWith(PREFIX) && !(stays && name.startsWith(stays))) store.removeItem(name)
  }
}
