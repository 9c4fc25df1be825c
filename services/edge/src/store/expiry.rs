//! Removes retained messages whose expiry interval has passed: from memory, and their rows from the store.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

use bytes::Bytes;
use millrace_layers::{BrokerId, LayerError, Store, retained};
use millrace_storage::block_on;

use super::{StoreContext, record};
use crate::clock::Clock;

/// Topics of a step.
const TOPICS: usize = 64;

/// Goes through the open brokers in turn, in steps of one transaction, because sessions wait for reads meanwhile.
#[derive(Default)]
pub(super) struct Expiry {
    brokers: VecDeque<u64>,
}

impl Expiry {
    pub(super) fn is_done(&self, shared: &StoreContext) -> bool {
        self.brokers.is_empty() && shared.expired().is_empty()
    }

    pub(super) fn start(&mut self, shared: &StoreContext) {
        if self.brokers.is_empty() {
            let now = shared.clock.now();
            let due = shared.brokers.each().filter(|broker| broker.has_expired(now));
            self.brokers.extend(due.map(|broker| broker.id));
        }
    }

    pub(super) fn step(&mut self, shared: &StoreContext) {
        let now = shared.clock.now();
        let next = shared.expired().pop_front();
        let (broker, topics) = match next {
            Some(removed_already) => removed_already,
            None => {
                let Some(id) = self.brokers.pop_front() else { return };
                let Some(broker) = shared.brokers.peek(id) else { return };
                let topics = broker.expire_retained(now, TOPICS);
                if broker.has_expired(now) {
                    self.brokers.push_back(id);
                }
                (id, topics)
            }
        };
        let topics: Vec<&[u8]> = topics.iter().map(|topic| topic.as_bytes()).collect();
        if let Err(error) = block_on(clear(&shared.layers, &shared.clock, broker, &topics)) {
            tracing::warn!(%error, "expired retained messages could not be removed from the store, where they take space for now");
        }
    }
}

impl StoreContext {
    /// Removes these topics' expired messages from the store soon.
    pub(super) fn clear_expired(&self, broker: BrokerId, topics: Vec<Arc<str>>) {
        if !topics.is_empty() {
            self.expired().push_back((broker, topics));
        }
    }

    fn expired(&self) -> MutexGuard<'_, VecDeque<(BrokerId, Vec<Arc<str>>)>> {
        self.upkeep.expired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes those of these topics' messages that have expired. A topic may have got a new message meanwhile, also from
/// another pod.
pub(super) async fn clear(
    layers: &Store,
    clock: &Clock,
    broker: BrokerId,
    topics: &[&[u8]],
) -> Result<(), LayerError> {
    let has_expired = |body: &Bytes| {
        let message = record::decode("".into(), body, clock);
        message.is_some_and(|message| message.is_expired(clock.now()))
    };
    layers
        .run(async |tx| {
            for topic in topics {
                retained::clear_if(&tx, broker, topic, has_expired).await?;
            }
            Ok(())
        })
        .await
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::{Properties, QoS};
    use millrace_session::Message;
    use millrace_storage::Read::Snapshot;

    use super::*;

    fn message(topic: &str, expires_at: Option<u64>) -> Arc<Message> {
        let (qos, properties) = (QoS::AtLeastOnce, Properties::EMPTY);
        Message::restored(topic.into(), qos, true, properties, b"x", expires_at).into()
    }

    fn store(shared: &StoreContext, broker: BrokerId, message: &Message) {
        let body = record::encode(message, &shared.clock).into();
        shared.run(&async |tx| retained::set(tx, broker, message.topic().as_bytes(), &body).await);
    }

    fn stored(shared: &StoreContext, broker: BrokerId) -> Vec<String> {
        let page = shared.run(&async |tx| retained::all(tx, broker, None, 1_000, Snapshot).await);
        page.items.iter().map(|item| String::from_utf8(item.topic.to_vec()).unwrap()).collect()
    }

    #[test]
    fn expired_messages_leave_memory_and_store_in_steps_unless_another_pod_has_replaced_them() {
        let (shared, id) = StoreContext::with_broker(true);
        let broker = shared.open("default").unwrap().unwrap();
        while shared.clock.now() == 0 {
            std::thread::yield_now();
        }
        let expired = TOPICS + 2;
        for number in 0..expired {
            let message = message(&format!("t/{number:03}"), Some(0));
            store(&shared, id, &message);
            drop(broker.retain(&message));
        }
        let last = format!("t/{:03}", expired - 1);
        store(&shared, id, &message(&last, None));
        for topic in ["stays", "stays too"] {
            store(&shared, id, &message(topic, None));
            drop(broker.retain(&message(topic, None)));
        }
        let mut expiry = Expiry::default();
        expiry.start(&shared);
        let mut steps = Vec::new();
        while !expiry.is_done(&shared) {
            expiry.step(&shared);
            steps.push((broker.retained.len(), stored(&shared, id).len()));
        }
        assert_eq!(steps, [(4, 4), (2, 3)]);
        assert_eq!(stored(&shared, id), ["stays", "stays too", &last]);
    }
}
