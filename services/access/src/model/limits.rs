//! Stored limits of a broker and its clients.

use serde::{Deserialize, Serialize};

use super::invalid::{Checked, Findings};
use crate::limits::PACKET_BYTES_MIN;

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

impl Limits {
    pub fn validate(&self) -> Checked {
        let mut findings = Findings::default();
        findings.within("limits", |findings| self.check(findings));
        findings.done()
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        let Self { broker, client } = self;
        let rates = [
            ("broker.connects_per_s", broker.connects_per_s),
            ("broker.publishes_per_s", broker.publishes_per_s),
            ("broker.publish_bytes_per_s", broker.publish_bytes_per_s),
            ("client.connects_per_min", client.connects_per_min),
            ("client.publishes_per_s", client.publishes_per_s),
            ("client.publish_bytes_per_s", client.publish_bytes_per_s),
        ];
        for (field, rate) in rates {
            // A rate of 0 would block its clients for ever.
            findings.require(rate != Some(0), field, "is 0: a rate is at least 1");
        }
        let packet = client.packet_bytes.unwrap_or(PACKET_BYTES_MIN);
        if packet < PACKET_BYTES_MIN {
            findings.add("client.packet_bytes", format!("is less than {PACKET_BYTES_MIN}"));
        }
    }
}
