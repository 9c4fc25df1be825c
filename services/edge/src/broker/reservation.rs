//! Room for retained messages until memory gets them, which with several pods is at their commit: only the order of the commits
//! says which message of a topic is the last one (P6).

use std::collections::hash_map::Entry;
use std::sync::Arc;

use millrace_session::Message;

use super::{Broker, retained_size};

pub(crate) type Reserved = Option<Box<Reservation>>;

pub(crate) struct Reservation {
    broker: Arc<Broker>,
    bytes: u64,
    /// Unless memory had a message of the topic.
    new_topic: Option<Arc<str>>,
}

impl Broker {
    pub(crate) fn reserve_retained(self: &Arc<Self>, message: &Message) -> Reserved {
        if message.payload().is_empty() {
            return None;
        }
        let present = self.retained.get(message.topic());
        let bytes = retained_size(message).saturating_sub(present.as_deref().map_or(0, retained_size));
        self.count_retained(bytes, 0);
        let new_topic = present.is_none().then(|| message.topic().clone());
        if let Some(topic) = &new_topic {
            *self.retained_gate().reserved.entry(topic.clone()).or_default() += 1;
        }
        Some(Box::new(Reservation { broker: self.clone(), bytes, new_topic }))
    }

    pub(super) fn has_room_for_topic(&self, topic: &str, limit: u64) -> bool {
        let gate = self.retained_gate();
        gate.reserved.contains_key(topic) || ((self.retained.len() + gate.reserved.len()) as u64) < limit
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.broker.count_retained(0, self.bytes);
        let Some(topic) = self.new_topic.take() else { return };
        if let Entry::Occupied(mut count) = self.broker.retained_gate().reserved.entry(topic) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::{Properties, QoS};

    use super::*;

    #[test]
    fn messages_that_wait_for_their_commit_count_until_they_are_dropped() {
        let broker = Arc::new(Broker::new(1, "b", 1));
        let message = |topic: &str, bytes| {
            let payload = vec![b'x'; bytes];
            Arc::new(Message::new(topic.into(), QoS::AtLeastOnce, true, Properties::EMPTY, &payload, 0))
        };
        let room = |topic, limit| broker.has_room_for_topic(topic, limit);
        drop(broker.retain(&message("present", 10)));
        let before = broker.retained_bytes();
        let new = [5, 6].map(|bytes| broker.reserve_retained(&message("new", bytes)));
        assert!(room("new", 2) && !room("other", 2) && room("other", 3));
        let replaced = broker.reserve_retained(&message("present", 15));
        let sizes = [5, 6].map(|bytes| retained_size(&message("new", bytes))).iter().sum::<u64>() + 5;
        assert_eq!(broker.retained_bytes() - before, sizes);
        assert!(broker.reserve_retained(&message("removed", 0)).is_none() && room("other", 3));
        drop((new, replaced));
        assert_eq!((broker.retained_bytes(), room("other", 2)), (before, true));
    }
}
