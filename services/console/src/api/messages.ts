// Messages: the short-lived credential of the page's own client.

import type { BrokerPath } from './brokers'
import { api, body, idempotencyKey, type Schemas } from './client'

const SECONDS = 3600

/** Client ids of this console begin so. A device may choose such an id, too. */
const PAGE_CLIENT = 'console-'
/** The server gives this user to the connect tokens of people. */
export const PAGE_USER = 'console:'

/** Whether a client is a page of a console, and no device. */
export const isPageClient = ({ method, user }: Pick<Schemas['ConnectedClient'], 'method' | 'user'>) =>
  method === 'connect_token' && (user?.startsWith(PAGE_USER) ?? false)

/** Whether an incident is about a page of a console. */
export const isPageIncident = ({ client_id, user }: Schemas['Incident']) =>
  (client_id?.startsWith(PAGE_CLIENT) ?? false) && (user == null || user.startsWith(PAGE_USER))

/** Lets one client of this page in for an hour. `canPublish`: it may do everything; else it only subscribes. */
export async function connectToken(
  path: BrokerPath,
  canPublish: boolean,
): Promise<Schemas['MadeConnectToken']> {
  const client_id = `${PAGE_CLIENT}${crypto.randomUUID().slice(0, 8)}`
  const rules: Schemas['Rule'][] = [
    { effect: 'allow', action: canPublish ? 'all' : 'subscribe', filter: '#' },
  ]
  return body(
    api.POST('/organisations/{organisation}/brokers/{broker}/connect-tokens', {
      params: { path, header: { 'Idempotency-Key': idempotencyKey() } },
      body: { client_id, rules, expires_in_s: SECONDS },
    }),
  )
}

export const testAccess = (path: BrokerPath, question: Schemas['AccessQuestion']) =>
  body(
    api.POST('/organisations/{organisation}/brokers/{broker}/access/test', {
      params: { path },
      body: question,
    }),
  )
