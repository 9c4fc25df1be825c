//! Setting retained messages.

use std::sync::Arc;

use millrace_mqtt::topic::levels;
use millrace_session::Message;

use super::{Core, work};
use crate::broker::{Broker, retained_size};
use crate::memory::Pressure;
use crate::quota::Limit;
use crate::routes::Routes;

impl Core {
    /// Whether the limits allow to retain the message. A refusal is counted and reported as an incident.
    pub(super) fn may_retain(&mut self, broker: &Arc<Broker>, message: &Message) -> bool {
        if message.payload().is_empty() {
            return true;
        }
        let limit = broker.quota.retained_max(self.process.limits.retained_messages_max);
        let old = broker.retained.get(message.topic());
        let has_room = old.is_some() || (broker.retained.len() as u64) < limit;
        let (before, after) = (old.map_or(0, |old| retained_size(&old)), retained_size(message));
        let grows = after > before;
        let bytes = broker.retained_bytes() - before + after;
        let reached = match () {
            () if !has_room => Limit::BrokerRetained,
            () if grows && self.process.memory.pressure() >= Pressure::QosZero => Limit::Memory,
            () if grows && !self.process.brokers.may_retain(broker, after - before) => Limit::Retained,
            () if bytes > self.process.limits.retained_bytes_max => Limit::BrokerRetainedBytes,
            () => return true,
        };
        self.broker_counters(broker).publish_quota.add(1);
        self.reached_by(broker, reached, None, None);
        false
    }

    /// Returns the receivers of the message, see [`Broker::retain`].
    pub(super) fn retain(&mut self, broker: &Arc<Broker>, message: &Arc<Message>) -> Arc<Routes> {
        self.spend(work::RETAINED_LEVEL * levels(message.topic().as_bytes()) as u64);
        let subscriptions = broker.retain(message);
        self.routes.get_at(broker, message.topic(), &subscriptions)
    }
}
