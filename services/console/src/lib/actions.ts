const DONE: Record<string, string> = {
  accept: 'accepted',
  add: 'added',
  adopt: 'adopted',
  change: 'changed',
  create: 'created',
  delete: 'deleted',
  go_on: 'goes on',
  put: 'changed',
  reach: 'reached',
  remove: 'removed',
  reset: 'counts anew',
  resume: 'resumed',
  rotate: 'rotated',
  set: 'set',
  stop_at_cap: 'stopped at its spend cap',
  suspend: 'suspended',
  test: 'tested',
}

const SAID: Record<string, string> = {
  sign_in: 'Signed in',
  'person.connect': 'Identity connected',
  'person.disconnect': 'Identity removed',
}

/** An action of the audit log in words: "credential.rotate" is "Credential rotated". Others stay as they are. */
export function actionSaid(action: string): string {
  const said = SAID[action]
  if (said) return said
  const [subject = '', verb = ''] = action.split('.')
  const done = DONE[verb]
  if (!done) return action
  const words = subject.replaceAll('_', ' ').replace('jwt', 'JWT').replace(/ ca$/, ' CA')
  return `${words.charAt(0).toUpperCase()}${words.slice(1)} ${done}`
}
