// The sentences above a snippet: whether it works as pasted, and what it still needs.

import { isLoopback } from './host'
import { CA_FILE, hasOwnCa, type Target } from './snippetParts'
import type { Snippet } from './snippets'

interface Login {
  /** A credential was made on this page. */
  isMade: boolean
  /** The settings of the server decide who connects. */
  isBySettings: boolean
}

export function snippetLead(
  { isBoard, ownsCa }: Pick<Snippet, 'isBoard' | 'ownsCa'>,
  target: Target,
  { isMade, isBySettings }: Login,
): string {
  if (isMade && isBySettings) return 'The server refuses this credential until you turn credentials on.'
  if (!isMade && target.user !== '')
    return isBySettings
      ? 'USER and PASSWORD stand for a user of the password file of the server, until you turn credentials on.'
      : 'Create a credential first. Until then, USER and PASSWORD stand for it.'
  if (isBoard && isLoopback(target.host))
    return `A board does not reach ${target.host}, which is this machine alone. Open the server to your network as it says under Endpoint. Enter this machine’s address there, and put the name and password of your Wi-Fi into the snippet.`
  return isBoard
    ? 'The snippet works once you put in the name and password of your Wi-Fi.'
    : `The snippet works as pasted${hasOwnCa(target) && !ownsCa ? `, in a folder with ${CA_FILE}` : ''}.`
}
