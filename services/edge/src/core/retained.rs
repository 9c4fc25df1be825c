//! Setting retained messages.

use std::sync::Arc;

use millrace_mqtt::topic::levels;
use millrace_session::Message;

use super::{Core, work};
use crate::broker::Broker;
use crate::memory::Pressure;
use crate::routes::Routes;

impl Core {
    /// Whether the limits allow to retain the message. A refusal is counted and reported as an incident.
    pub(super) fn may_retain(&mut self, broker: &Arc<Broker>, message: &Message) -> bool {
        let is_memory_short = self.process.memory.pressure() >= Pressure::QosZero;
        let (brokers, limits) = (&self.process.brokers, &self.process.limits);
        let Some(reached) = brokers.limit_of_retaining(broker, message, limits, is_memory_short) else {
            return true;
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
