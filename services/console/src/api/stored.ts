// Where messages are: what the store has of a topic.

import { queryOptions } from '@tanstack/react-query'
import { LISTED_MAX } from '../lib/follow'
import type { BrokerPath } from './brokers'
import { api, body, type Schemas } from './client'

export type StoredMessages = Schemas['StoredMessages']
export type StoredMessage = Schemas['StoredMessage']
export type MessageReceiver = Schemas['MessageReceiver']
export type ReceiverState = Schemas['ReceiverState']
export type RemovedMessages = Schemas['RemovedMessages']
export type RemovalReason = Schemas['RemovalReason']

export const storedMessagesQuery = (path: BrokerPath, topic: string) =>
  queryOptions({
    queryKey: ['b', path.broker, 'stored', topic],
    refetchInterval: 5_000,
    queryFn: ({ signal }) =>
      body(
        api.GET('/organisations/{organisation}/brokers/{broker}/messages', {
          params: { path, query: { topic, limit: LISTED_MAX } },
          signal,
        }),
      ),
  })
