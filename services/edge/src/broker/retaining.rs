//! The limits of retained messages.

use millrace_session::Message;

use super::{Broker, Brokers, retained_size};
use crate::limits::EdgeLimits;
use crate::quota::Limit;

impl Brokers {
    /// The limit that forbids the broker to retain the message. `is_memory_short`: the retained messages must not grow.
    pub(crate) fn limit_of_retaining(
        &self,
        broker: &Broker,
        message: &Message,
        limits: &EdgeLimits,
        is_memory_short: bool,
    ) -> Option<Limit> {
        if message.payload().is_empty() {
            return None;
        }
        let limit = broker.quota.retained_max(limits.retained_messages_max);
        let old = broker.retained.get(message.topic());
        let has_room = old.is_some() || (broker.retained.len() as u64) < limit;
        let (before, after) = (old.map_or(0, |old| retained_size(&old)), retained_size(message));
        let grows = after > before;
        let bytes = (broker.retained_bytes() + after).saturating_sub(before);
        match () {
            () if !has_room => Some(Limit::BrokerRetained),
            () if grows && is_memory_short => Some(Limit::Memory),
            () if grows && !self.may_retain(broker, after - before) => Some(Limit::Retained),
            () => (bytes > limits.retained_bytes_max).then_some(Limit::BrokerRetainedBytes),
        }
    }
}
