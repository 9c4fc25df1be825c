// Losses of clients when the access of a broker is set, which ends the settings of the server for it.

import type { AccessSettings } from '../api/access'

/** Changes for clients, a sentence each, apart from the disconnection of all. */
export function ownAccessLosses({ anonymous = false, rules = [] }: AccessSettings): string[] {
  return [
    anonymous
      ? 'From then on the server refuses users of its password file.'
      : 'From then on the server refuses clients without a credential, and users of its password file.',
    rules.length > 0
      ? 'The rules file of the server (rules_file) stops applying: the rules of this broker replace it.'
      : 'The rules file of the server (rules_file) stops applying, and this broker has no rules for all clients. A client without rules of its credential or group may publish and subscribe to everything.',
    'The broker does not go back to the settings of the server.',
  ]
}
