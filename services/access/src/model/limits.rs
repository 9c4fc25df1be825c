//! What a broker and its clients may use.

use serde::{Deserialize, Serialize};

/// Limits of a broker. `None`: the edge's own limit of that kind counts, and it is never exceeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Limits {
    /// Of all its clients together.
    pub broker: BrokerLimits,
    /// Of each client.
    pub client: ClientLimits,
}

/// Limits of all clients of a broker together, in the region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct BrokerLimits {
    /// Connections at once.
    pub connections: Option<u64>,
    /// CONNECTs a second.
    pub connects_per_s: Option<u64>,
    /// Messages that are published a second.
    pub publishes_per_s: Option<u64>,
    /// Bytes (topic, properties, payload) that are published a second.
    pub publish_bytes_per_s: Option<u64>,
    /// Subscriptions of all sessions.
    pub subscriptions: Option<u64>,
    /// Bytes that wait for all sessions.
    pub queue_bytes: Option<u64>,
    /// Retained messages.
    pub retained_messages: Option<u64>,
}

/// Limits of each client of a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ClientLimits {
    /// CONNECTs a minute under one client id.
    pub connects_per_min: Option<u64>,
    /// Messages that it publishes a second.
    pub publishes_per_s: Option<u64>,
    /// Bytes (topic, properties, payload) that it publishes a second.
    pub publish_bytes_per_s: Option<u64>,
    /// Subscriptions of its session.
    pub subscriptions: Option<u64>,
    /// Messages that wait for its session.
    pub queue_messages: Option<u64>,
    /// Bytes that wait for its session.
    pub queue_bytes: Option<u64>,
    /// Longest time that a message waits for its session, seconds.
    pub queue_age_s: Option<u64>,
    /// Largest packet that it may send, bytes.
    pub packet_bytes: Option<u64>,
}
