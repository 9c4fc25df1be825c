// Messages: the short-lived credential of the page's own client.

import type { BrokerPath } from './brokers'
import { api, body, idempotencyKey, type Schemas } from './client'

const SECONDS = 3600

/** Client ids of this console begin so: they are no devices. */
export const PAGE_CLIENT = 'console-'
export const isPageClient = ({ client_id }: { client_id: string }) => client_id.startsWith(PAGE_CLIENT)

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
