//! Sets and clears retained messages.

use std::sync::Arc;

use millrace_mqtt::topic::levels;
use millrace_session::Message;

use super::{Core, work};
use crate::broker::{Broker, Reserved};
use crate::memory::Pressure;
use crate::routes::Routes;
use crate::store::StoreService;

impl Core {
    /// Whether the limits allow to retain the message; a refusal is counted, reported as an incident, and noted in the message.
    pub(super) fn may_retain(&mut self, broker: &Arc<Broker>, message: &Message) -> bool {
        let is_memory_short = self.process.memory.pressure() >= Pressure::QosZero;
        let (brokers, limits) = (&self.process.brokers, &self.process.limits);
        let at = (is_memory_short, self.now_ms);
        let (reached, expired) = brokers.limit_of_retaining(broker, message, limits, at);
        self.spend(expired.iter().map(|topic| work_of(topic)).sum());
        if let Some(store) = &self.process.store {
            store.clear_expired(broker.id, expired);
        }
        let Some(reached) = reached else { return true };
        message.forbid_retaining();
        self.broker_counters(broker).publish_quota.add(1);
        self.reached_by(broker, reached, None, None);
        false
    }

    /// Retains a message in memory: with several pods only at its commit, because the commits decide which message is the last (P6).
    pub(super) fn retain_stored(
        &mut self,
        routes: Arc<Routes>,
        message: &Arc<Message>,
        retains: bool,
    ) -> (Arc<Routes>, Reserved) {
        match retains {
            true if self.process.is_shared() => {
                let reserved = routes.broker.reserve_retained(message);
                (routes, reserved)
            }
            true => {
                let reserved = self.process.store.as_ref().map(StoreService::reserve_in_memory);
                (self.retain(&routes.broker, message), reserved)
            }
            false => (routes, None),
        }
    }

    /// Returns the receivers of the message, see [`Broker::retain`].
    pub(super) fn retain(&mut self, broker: &Arc<Broker>, message: &Arc<Message>) -> Arc<Routes> {
        self.spend(work_of(message.topic()));
        let subscriptions = broker.retain(message);
        self.routes.get_at(broker, message.topic(), &subscriptions)
    }
}

fn work_of(topic: &str) -> u64 {
    work::RETAINED_LEVEL * levels(topic.as_bytes()) as u64
}
