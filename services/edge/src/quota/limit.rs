//! Names, texts and counters of the tenant limits.

use crate::metrics::{CoreCounters, Count};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Limit {
    BrokerConnections,
    BrokerConnects,
    BrokerMessages,
    BrokerBytes,
    BrokerFilterRate,
    BrokerSubscriptions,
    BrokerQueueBytes,
    BrokerRetained,
    ClientConnects,
    ClientMessages,
    ClientBytes,
    ClientSubscriptions,
    ClientQueue,
    ClientPacket,
    PacketProperties,
    ShareNames,
    Matches,
    BrokerRetainedBytes,
    ClientAliases,
    BrokerAliases,
    BrokerFilters,
    BrokerSessions,
    BrokerWills,
    Filters,
    Input,
    Retained,
    Memory,
}

impl Limit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BrokerConnections => "broker.connections",
            Self::BrokerConnects => "broker.connects_per_s",
            Self::BrokerMessages => "broker.publishes_per_s",
            Self::BrokerBytes => "broker.publish_bytes_per_s",
            Self::BrokerFilterRate => "broker.filters_per_s",
            Self::BrokerSubscriptions => "broker.subscriptions",
            Self::BrokerQueueBytes => "broker.queue_bytes",
            Self::BrokerRetained => "broker.retained_messages",
            Self::ClientConnects => "client.connects_per_min",
            Self::ClientMessages => "client.publishes_per_s",
            Self::ClientBytes => "client.publish_bytes_per_s",
            Self::ClientSubscriptions => "client.subscriptions",
            Self::ClientQueue => "client.queue",
            Self::ClientPacket => "client.packet_bytes",
            Self::PacketProperties => "packet.properties",
            Self::ShareNames => "filter.share_names",
            Self::Matches => "topic.matching_filters",
            Self::BrokerRetainedBytes => "broker.retained_bytes",
            Self::ClientAliases => "client.topic_alias_bytes",
            Self::BrokerAliases => "broker.topic_alias_bytes",
            Self::BrokerFilters => "broker.filter_bytes",
            Self::BrokerSessions => "broker.stored_sessions",
            Self::BrokerWills => "broker.will_bytes",
            Self::Filters => "server.filter_bytes",
            Self::Input => "server.input_bytes",
            Self::Retained => "server.retained_bytes",
            Self::Memory => "server.memory",
        }
    }

    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::BrokerConnections => "the broker has as many connections as it may have",
            Self::BrokerConnects => "more clients connect than may: some are told to try again later",
            Self::BrokerMessages => {
                "the broker's clients publish more messages than they may: their connections are read more slowly"
            }
            Self::BrokerBytes => {
                "the broker's clients publish more bytes than they may: their connections are read more slowly"
            }
            Self::BrokerFilterRate => "more filters change than may: clients that subscribe wait",
            Self::BrokerSubscriptions => "the broker has as many subscriptions as it may have",
            Self::BrokerQueueBytes => {
                "more waits for the sessions of the broker than its limit: the oldest messages were removed"
            }
            Self::BrokerRetained => "the broker has as many retained messages as it may have",
            Self::ClientConnects => {
                "the client connects more often than it may: it is told to try again later"
            }
            Self::ClientMessages => {
                "the client publishes more messages than it may: its connection is read more slowly"
            }
            Self::ClientBytes => {
                "the client publishes more bytes than it may: its connection is read more slowly"
            }
            Self::ClientSubscriptions => "the session has as many subscriptions as it may have",
            Self::ClientQueue => "more or older messages wait than the limits allow: the oldest were removed",
            Self::ClientPacket => "the packet is larger than a client may send: its connection was closed",
            Self::PacketProperties => "the packet has too many user properties: its connection was closed",
            Self::ShareNames => "the filter has too many share names: the subscription was refused",
            Self::Matches => "too many overlapping filters match the topic: messages to it are refused",
            Self::BrokerRetainedBytes => {
                "the retained messages of the broker have reached their memory limit: further ones are refused"
            }
            Self::ClientAliases => {
                "the topic aliases of the client have reached their limit of bytes: its connection was closed"
            }
            Self::BrokerAliases => {
                "the topic aliases of the broker's clients have reached their limit of bytes: connections that set more are closed"
            }
            Self::BrokerFilters => {
                "the subscriptions of the broker have reached their memory limit: further ones are refused"
            }
            Self::BrokerSessions => {
                "the broker has as many stored sessions as it may have: clients without one are refused"
            }
            Self::BrokerWills => {
                "the wills of the broker's clients have reached their limit of bytes: clients with larger ones are refused"
            }
            Self::Filters => {
                "the subscriptions of all brokers have reached their memory limit: further ones are refused"
            }
            Self::Input => "incomplete packets exceed their memory limit: their connections are closed",
            Self::Retained => "there is no memory for more retained messages, nor for those in the store",
            Self::Memory => {
                "the server has little memory left: retained messages that are new or larger are refused"
            }
        }
    }

    pub(crate) fn counter(self, counters: &CoreCounters) -> &Count {
        match self {
            Self::BrokerConnections => &counters.limit_broker_connections,
            Self::BrokerConnects => &counters.limit_broker_connects,
            Self::BrokerMessages => &counters.limit_broker_messages,
            Self::BrokerBytes => &counters.limit_broker_bytes,
            Self::BrokerFilterRate => &counters.limit_broker_filter_rate,
            Self::BrokerSubscriptions => &counters.limit_broker_subscriptions,
            Self::BrokerQueueBytes => &counters.limit_broker_queue_bytes,
            Self::BrokerRetained => &counters.limit_broker_retained,
            Self::ClientConnects => &counters.limit_client_connects,
            Self::ClientMessages => &counters.limit_client_messages,
            Self::ClientBytes => &counters.limit_client_bytes,
            Self::ClientSubscriptions => &counters.limit_client_subscriptions,
            Self::ClientQueue => &counters.limit_client_queue,
            Self::ClientPacket => &counters.limit_client_packet,
            Self::PacketProperties => &counters.limit_packet_properties,
            Self::ShareNames => &counters.limit_share_names,
            Self::Matches => &counters.limit_matches,
            Self::BrokerRetainedBytes => &counters.limit_retained_bytes,
            Self::ClientAliases => &counters.limit_client_aliases,
            Self::BrokerAliases => &counters.limit_broker_aliases,
            Self::BrokerFilters => &counters.limit_broker_filters,
            Self::BrokerSessions => &counters.limit_broker_sessions,
            Self::BrokerWills => &counters.limit_broker_wills,
            Self::Filters => &counters.limit_filters,
            Self::Input => &counters.limit_input,
            Self::Retained => &counters.limit_retained,
            Self::Memory => &counters.limit_memory,
        }
    }
}
