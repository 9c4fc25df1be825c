// Webhooks of a broker: their settings, state, deliveries and dead letters.

import { queryOptions } from '@tanstack/react-query'
import type { BrokerPath } from './brokers'
import { api, body, everything, putTagged, type Schemas, tagged } from './client'

export type Webhook = Schemas['ShownWebhook']
export type WebhookSettings = Schemas['WebhookSettings']
export type DeadLetter = Schemas['DeadLetter']
export type Delivery = Schemas['WebhookDelivery']

const AT = '/organisations/{organisation}/brokers/{broker}/webhooks'
const ROWS_MAX = 1000

export const webhooksQuery = (path: BrokerPath) =>
  queryOptions({
    queryKey: ['b', path.broker, 'webhooks'],
    queryFn: ({ signal }) =>
      everything<Webhook>(
        (cursor) => body(api.GET(AT, { params: { path, query: { cursor, limit: 200 } }, signal })),
        ROWS_MAX,
      ),
  })

/** `before` is what the form has read; undefined: nothing of this name may be there. `overwrites` replaces what somebody else has saved. */
export function putWebhook(
  path: BrokerPath,
  name: string,
  settings: WebhookSettings,
  before: Webhook | undefined,
  overwrites: boolean,
) {
  const at = { ...path, name }
  return putTagged(
    (header) => body(api.PUT(`${AT}/{name}`, { params: { path: at, header }, body: settings })),
    () => tagged(api.GET(`${AT}/{name}`, { params: { path: at } })),
    before,
    overwrites,
  )
}

export const deleteWebhook = (path: BrokerPath, name: string) =>
  body(api.DELETE(`${AT}/{name}`, { params: { path: { ...path, name }, header: { 'If-Match': '*' } } }))

export const statusQuery = (path: BrokerPath, name: string) =>
  queryOptions({
    queryKey: ['b', path.broker, 'webhook status', name],
    refetchInterval: 3_000,
    queryFn: ({ signal }) =>
      body(api.GET(`${AT}/{name}/status`, { params: { path: { ...path, name } }, signal })),
  })

export const deadLettersQuery = (path: BrokerPath, name: string) =>
  queryOptions({
    queryKey: ['b', path.broker, 'dead letters', name],
    refetchInterval: 5_000,
    queryFn: ({ signal }) =>
      everything<DeadLetter>(
        (cursor) =>
          body(
            api.GET(`${AT}/{name}/dead-letters`, {
              params: { path: { ...path, name }, query: { cursor, limit: 200 } },
              signal,
            }),
          ),
        ROWS_MAX,
      ),
  })

/** The last attempts, the latest first. */
export const deliveriesQuery = (path: BrokerPath, name: string) =>
  queryOptions({
    queryKey: ['b', path.broker, 'deliveries', name],
    refetchInterval: 5_000,
    queryFn: async ({ signal }) =>
      (await body(api.GET(`${AT}/{name}/deliveries`, { params: { path: { ...path, name } }, signal }))).items,
  })

export const testWebhook = (path: BrokerPath, name: string) =>
  body(api.POST(`${AT}/{name}/test`, { params: { path: { ...path, name } } }))

interface KeyRotation {
  path: BrokerPath
  name: string
  overlap_s: number
  /** Null: the server generates the key. */
  signing_key: string | null
}

/** Replaces the signing key; until the end of the overlap the previous key signs too. */
export const rotateKey = ({ path, name, overlap_s, signing_key }: KeyRotation, key: string) =>
  body(
    api.POST(`${AT}/{name}/rotate-key`, {
      params: { path: { ...path, name }, header: { 'Idempotency-Key': key } },
      body: { overlap_s, signing_key },
    }),
  )

/** Sends a dead letter again; without `letter`, all of the webhook. */
export const retryDeadLetters = (path: BrokerPath, name: string, letter?: string) => {
  const at = { ...path, name }
  if (letter === undefined) return body(api.POST(`${AT}/{name}/dead-letters/retry`, { params: { path: at } }))
  return body(api.POST(`${AT}/{name}/dead-letters/{letter}/retry`, { params: { path: { ...at, letter } } }))
}

/** As `retryDeadLetters`: one dead letter or all. */
export const removeDeadLetters = (path: BrokerPath, name: string, letter?: string) => {
  const at = { ...path, name }
  if (letter === undefined) return body(api.DELETE(`${AT}/{name}/dead-letters`, { params: { path: at } }))
  return body(api.DELETE(`${AT}/{name}/dead-letters/{letter}`, { params: { path: { ...at, letter } } }))
}
