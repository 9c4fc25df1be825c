//! Room for retained messages that wait for their commit. With several pods memory gets a message at its commit, because only the
//! order of the commits says which message of a topic is the last one (P6). Until then a reservation counts for the limits.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_session::Message;

use super::retaining::RetainedGate;
use super::{Broker, retained_size};

pub(crate) type Reserved = Option<Reservation>;

#[expect(dead_code, reason = "a job has it until the job ends")]
pub(crate) enum Reservation {
    Room(Box<ReservedRoom>),
    /// In one process memory has the message before its commit, see `store/taken_back.rs`.
    InMemory(Arc<()>),
}

pub(crate) struct ReservedRoom {
    broker: Arc<Broker>,
    topic: Arc<str>,
}

#[derive(Default)]
pub(super) struct ReservedTopics {
    topics: HashMap<Arc<str>, ReservedTopic>,
    /// Topics among them that have no retained message in memory.
    new: usize,
}

/// The messages of one topic that wait for their commit: only one of them stays, so they need room for the largest.
#[derive(Default)]
struct ReservedTopic {
    messages: usize,
    largest: u64,
    /// The part of `largest` that counts for the limits, besides the message in memory.
    counted: u64,
    is_new: bool,
}

impl Broker {
    pub(crate) fn reserve_retained(self: &Arc<Self>, message: &Message) -> Reserved {
        if message.payload().is_empty() {
            return None;
        }
        let topic = message.topic().clone();
        let mut gate = self.retained_gate();
        let reserved = gate.reserved.topics.entry(topic.clone()).or_default();
        reserved.messages += 1;
        reserved.largest = reserved.largest.max(retained_size(message));
        self.recount_reserved(&mut gate, &topic);
        drop(gate);
        Some(Reservation::Room(Box::new(ReservedRoom { broker: self.clone(), topic })))
    }

    /// Follows each change of the topic's reservations and of its message in memory.
    pub(super) fn recount_reserved(&self, gate: &mut RetainedGate, topic: &str) {
        let ReservedTopics { topics, new } = &mut gate.reserved;
        let Some(reserved) = topics.get_mut(topic) else { return };
        let is_over = reserved.messages == 0;
        let present = self.retained.get(topic);
        let is_new = present.is_none() && !is_over;
        let largest = if is_over { 0 } else { reserved.largest };
        let bytes = largest.saturating_sub(present.as_deref().map_or(0, retained_size));
        self.count_retained(bytes, reserved.counted);
        *new = *new + usize::from(is_new) - usize::from(reserved.is_new);
        (reserved.counted, reserved.is_new) = (bytes, is_new);
        if is_over {
            topics.remove(topic);
        }
    }

    /// The bytes that messages of the topic may take without more room; `None`: it has neither a message nor a reservation.
    pub(super) fn retained_room(&self, topic: &str) -> Option<u64> {
        let gate = self.retained_gate();
        let reserved = gate.reserved.topics.get(topic).map(|reserved| reserved.largest);
        reserved.max(self.retained.get(topic).as_deref().map(retained_size))
    }

    pub(super) fn has_room_for_topic(&self, limit: u64) -> bool {
        let new = self.retained_gate().reserved.new;
        ((self.retained.len() + new) as u64) < limit
    }
}

impl Drop for ReservedRoom {
    fn drop(&mut self) {
        let mut gate = self.broker.retained_gate();
        if let Some(reserved) = gate.reserved.topics.get_mut(&self.topic) {
            reserved.messages -= 1;
        }
        self.broker.recount_reserved(&mut gate, &self.topic);
    }
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::{Properties, QoS};

    use super::*;
    use crate::broker::Brokers;
    use crate::home::Loads;
    use crate::limits::EdgeLimits;
    use crate::quota::Limit;

    fn message(topic: &str, bytes: usize) -> Arc<Message> {
        let payload = vec![b'x'; bytes];
        Arc::new(Message::new(topic.into(), QoS::AtLeastOnce, true, Properties::EMPTY, &payload, 0))
    }

    #[test]
    fn messages_that_wait_for_their_commit_count_until_they_are_dropped() {
        let broker = Arc::new(Broker::new(1, "b", 1));
        let room = |topic, limit| broker.retained_room(topic).is_some() || broker.has_room_for_topic(limit);
        drop(broker.retain(&message("present", 10)));
        let before = broker.retained_bytes();
        let new = [6, 5].map(|bytes| broker.reserve_retained(&message("new", bytes)));
        assert!(room("new", 2) && !room("other", 2) && room("other", 3));
        let replaced = broker.reserve_retained(&message("present", 15));
        assert!(!room("other", 2) && room("other", 3));
        assert_eq!(broker.retained_bytes() - before, retained_size(&message("new", 6)) + 5);
        assert!(broker.reserve_retained(&message("removed", 0)).is_none() && room("other", 3));
        drop((new, replaced));
        assert_eq!((broker.retained_bytes(), room("other", 2)), (before, true));
    }

    #[test]
    fn messages_of_one_topic_need_room_for_the_largest_of_them() {
        let brokers = Brokers::new(u64::MAX, u64::MAX, Loads::new(1, 0));
        let broker = Arc::new(Broker::new(1, "b", 1));
        brokers.insert(&broker);
        let size = retained_size(&message("t", 100));
        let limits =
            EdgeLimits { retained_bytes_max: size, retained_messages_max: 1, ..EdgeLimits::default() };
        let reached =
            |topic, bytes| brokers.limit_of_retaining(&broker, &message(topic, bytes), &limits, (false, 1)).0;
        let mut reserved = Vec::new();
        for bytes in [100, 100, 50] {
            assert_eq!(reached("t", bytes), None);
            reserved.push(broker.reserve_retained(&message("t", bytes)));
        }
        for _ in 0..2 {
            assert_eq!((broker.retained_bytes(), reached("t", 100)), (size, None));
            assert_eq!(reached("t", 101), Some(Limit::BrokerRetainedBytes));
            assert_eq!(reached("u", 1), Some(Limit::BrokerRetained));
            drop(broker.retain(&message("t", 100)));
        }
        assert!(broker.remove_retained("t"));
        assert_eq!(broker.retained_bytes(), size, "a message still waits");
        reserved.clear();
        assert_eq!((broker.retained_bytes(), reached("u", 100)), (0, None));
    }
}
