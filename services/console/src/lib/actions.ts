/** By the verb of an action, its text after the subject. */
const OUTCOMES: Record<string, string> = {
  accept: 'accepted',
  add: 'added',
  adopt: 'adopted',
  change: 'changed',
  create: 'created',
  delete: 'deleted',
  go_on: 'running again after its spend cap',
  put: 'changed',
  reach: 'reached',
  remove: 'removed',
  reset: 'counter reset',
  resume: 'resumed',
  rotate: 'rotated',
  set: 'set',
  stop_at_cap: 'stopped at its spend cap',
  suspend: 'suspended',
  test: 'tested',
}

/** Actions whose text is not subject and outcome. */
const TEXTS: Record<string, string> = {
  sign_in: 'Signed in',
  'sign_in.ask_code': 'Password accepted, second factor requested',
  'sign_in.refuse': 'Sign-in refused',
  'person.add_passkey': 'Passkey added',
  'person.ask_address': 'New e-mail address requested',
  'person.ask_password_reset': 'New password requested',
  'person.begin_second_factor': 'Set-up of second factor begun',
  'person.change': 'Name changed',
  'person.change_address': 'E-mail address changed',
  'person.change_password': 'Password changed',
  'person.connect': 'Identity connected',
  'person.delete': 'Account deleted',
  'person.disable_second_factor': 'Second factor turned off',
  'person.disconnect': 'Identity removed',
  'person.enable_second_factor': 'Second factor turned on',
  'person.end_sessions': 'Browsers signed out',
  'person.make_reset_link': 'Link for a new password made',
  'person.refuse_code': 'Wrong code refused',
  'person.refuse_passkey': 'Passkey refused',
  'person.remove_passkey': 'Passkey removed',
  'person.remove_second_factor': 'Second factor removed by an operator',
  'person.rename_passkey': 'Passkey renamed',
  'person.renew_recovery_codes': 'Recovery codes renewed',
  'person.reset_password': 'Password reset',
  'client.kick': 'Client disconnected',
  'credential.create_batch': 'Credentials created in a batch',
  'credential.claim': 'Credential claimed by a device',
  'credential.repeat_claim': 'Claim of a credential repeated by a device',
  'credential.refuse_claim': 'Claim of a credential refused',
  'organisation.plan': 'Plan changed',
  'plan.set': 'Plan set',
  'pod.drain': 'Drain of a pod begun',
  'retained.clear': 'Retained message cleared',
  'session.purge': 'Session cleared',
  'session.purge_expired': 'Expired sessions cleared',
  'stream.purge': 'Stored messages of a filter cleared',
  'webhook.remove_dead_letters': 'Dead letters removed',
  'webhook.retry_dead_letters': 'Dead letters sent again',
  'webhook.rotate_key': 'Webhook signing key rotated',
}

interface Targeted {
  target: string
  actor: { id?: string | null; name: string }
  details: Record<string, unknown>
}

const UUID = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/

/** The name of an entry's target. The log names some targets, such as API tokens, by their id alone. */
export function targetText({ target, actor, details }: Targeted, names: Record<string, string> = {}): string {
  if (!UUID.test(target)) return target
  const after = details.after as { name?: unknown } | null | undefined
  const found = [details.name, after?.name, names[target], target === actor.id && actor.name]
  return found.find((name): name is string => typeof name === 'string' && name !== '') ?? target
}

/** An action of the audit log as people read it: "credential.rotate" is "Credential rotated". Others stay as they are. */
export function actionText(action: string): string {
  const text = TEXTS[action]
  if (text) return text
  const [subject = '', verb = ''] = action.split('.')
  const outcome = OUTCOMES[verb]
  if (!outcome) return action
  const words = subject.replaceAll('_', ' ').replace('jwt', 'JWT').replace(/ ca$/, ' CA')
  return `${words.charAt(0).toUpperCase()}${words.slice(1)} ${outcome}`
}
