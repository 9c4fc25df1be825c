// Queries of a broker's stored messages: all streams, one stream with its readers, and the messages of a topic.

import { queryOptions } from '@tanstack/react-query'
import { LISTED_MAX } from '../lib/follow'
import type { BrokerPath } from './brokers'
import { api, body, everything, type Schemas } from './client'

export type StoredMessages = Schemas['StoredMessages']
export type StoredMessage = Schemas['StoredMessage']
export type MessageReceiver = Schemas['MessageReceiver']
export type ReceiverState = Schemas['ReceiverState']
export type RemovedMessages = Schemas['RemovedMessages']
export type RemovalReason = Schemas['RemovalReason']
export type StreamDetails = Schemas['StreamDetails']

/** Most streams that are loaded, in pages of 200; the page says when there are more. */
const STREAMS_MAX = 5_000

export const streamsQuery = (path: BrokerPath) =>
  queryOptions({
    queryKey: ['b', path.broker, 'streams'],
    refetchInterval: 15_000,
    queryFn: ({ signal }) =>
      everything<Schemas['Stream']>(
        (cursor) =>
          body(
            api.GET('/organisations/{organisation}/brokers/{broker}/streams', {
              params: { path, query: { cursor, limit: 200 } },
              signal,
            }),
          ),
        STREAMS_MAX,
      ),
  })

export const streamQuery = (path: BrokerPath, filter: string) =>
  queryOptions({
    queryKey: ['b', path.broker, 'stream', filter],
    refetchInterval: 5_000,
    queryFn: ({ signal }) =>
      body(
        api.GET('/organisations/{organisation}/brokers/{broker}/streams/stream', {
          params: { path, query: { filter } },
          signal,
        }),
      ),
  })

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
