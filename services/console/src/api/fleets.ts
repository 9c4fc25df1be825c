// Credentials of many devices: in batches, and by claim tokens that devices exchange themselves.

import { queryOptions } from '@tanstack/react-query'
import type { BrokerPath } from './brokers'
import { api, body, everything, type Schemas } from './client'

export type ClaimToken = Schemas['ClaimToken']
export type MadeClaimToken = Schemas['MadeClaimToken']
export type NewClaimToken = Schemas['NewClaimToken']
export type NewBatch = Schemas['NewCredentialBatch']

const ROWS_MAX = 1_000
const AT = '/organisations/{organisation}/brokers/{broker}'

export const claimTokensQuery = (path: BrokerPath) =>
  queryOptions({
    queryKey: ['b', path.broker, 'claim tokens'],
    queryFn: ({ signal }) =>
      everything<ClaimToken>(
        (cursor) =>
          body(api.GET(`${AT}/claim-tokens`, { params: { path, query: { cursor, limit: 200 } }, signal })),
        ROWS_MAX,
      ),
  })

interface ClaimTokenOf {
  path: BrokerPath
  token: NewClaimToken
}

export const createClaimToken = ({ path, token }: ClaimTokenOf, key: string) =>
  body(api.POST(`${AT}/claim-tokens`, { params: { path, header: { 'Idempotency-Key': key } }, body: token }))

export const deleteClaimToken = (path: BrokerPath, claim_token: string) =>
  body(api.DELETE(`${AT}/claim-tokens/{claim_token}`, { params: { path: { ...path, claim_token } } }))

interface BatchOf {
  path: BrokerPath
  batch: NewBatch
}

/** All credentials of the batch, in its order, or none. */
export const createBatch = async ({ path, batch }: BatchOf, key: string) => {
  const params = { path, header: { 'Idempotency-Key': key } }
  return (await body(api.POST(`${AT}/credential-batches`, { params, body: batch }))).items
}
