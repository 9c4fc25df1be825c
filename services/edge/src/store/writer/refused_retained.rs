//! Retained messages that the store refused: memory gets back what the store has.
//!
//! A message is in memory before it is stored, and an earlier message of its topic may still have to be written, as part of the same
//! batch. So memory changes after the batch. Until the store can be read, the refused message stays in memory.

use std::sync::Arc;

use millrace_layers::retained;
use millrace_session::Message;
use millrace_storage::{Read, block_on};

use crate::broker::Broker;
use crate::clock::seconds;
use crate::store::{Publish, record};

use super::Writer;

const AT_ONCE: usize = 500;
/// Entries from which on those are removed whose topics have other messages by now.
const CLEANED_FROM: usize = 1_000;

#[derive(Default)]
pub(super) struct RefusedRetained {
    messages: Vec<(Arc<Broker>, Arc<Message>)>,
    clean_at: usize,
    pub(super) is_unreadable: bool,
}

impl RefusedRetained {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn push(&mut self, broker: &Arc<Broker>, message: &Arc<Message>) {
        if self.messages.len() >= self.clean_at.max(CLEANED_FROM) {
            self.messages.retain(|(broker, message)| broker.has_retained(message));
            self.clean_at = 2 * self.messages.len();
        }
        self.messages.push((broker.clone(), message.clone()));
    }
}

impl Writer<'_> {
    pub(super) fn take_back(&mut self, publish: &Publish) {
        let Publish { message, routes, retains, .. } = publish;
        if !retains {
            return;
        }
        message.forbid_retaining();
        if self.shared.is_shared {
            // Subscribers get what the store has.
            return routes.broker.take_back(message, None);
        }
        self.refused_retained.push(&routes.broker, message);
    }

    pub(super) fn take_back_refused(&mut self) {
        let shared = self.shared;
        for _ in 0..AT_ONCE {
            if self.refused_retained.is_unreadable {
                return;
            }
            let Some((broker, message)) = self.refused_retained.messages.pop() else { return };
            if !broker.has_retained(&message) {
                continue;
            }
            let (id, topic) = (broker.id, message.topic());
            let read =
                shared.layers.run(async |tx| retained::get(&tx, id, topic.as_bytes(), Read::Snapshot).await);
            match block_on(read) {
                Ok(body) => {
                    let former = body.and_then(|body| record::decode(topic.clone(), &body, &shared.clock));
                    let former = former.filter(|former| !former.is_expired(seconds(shared.clock.now())));
                    broker.take_back(&message, former.map(Arc::new));
                }
                Err(error) => {
                    tracing::debug!(%error, "what the store retains cannot be read");
                    self.refused_retained.is_unreadable = true;
                    self.refused_retained.messages.push((broker, message));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::{Properties, QoS};

    use super::*;
    use crate::routes::RouteCache;
    use crate::store::writer::refusals::Why;
    use crate::store::{Job, Shared, Write};

    /// A message that is in memory and not stored yet.
    fn retain(broker: &Arc<Broker>, payload: &[u8]) -> Job {
        let message = Message::new("t".into(), QoS::AtLeastOnce, true, Properties::EMPTY, payload, 0);
        let (message, routes) = (Arc::new(message), RouteCache::default().get(broker, "t"));
        drop(broker.retain(&message));
        let publish = Publish {
            message,
            routes,
            from: None,
            publisher: 1,
            retains: true,
            deliver: false,
            fence: None,
            wanted: None,
            queued_us: 0,
        };
        Job { write: Write::Publish(publish), ack: None }
    }

    /// Payloads in memory and in the store.
    fn kept(shared: &Shared, broker: &Broker) -> [Option<Vec<u8>>; 2] {
        let body = shared.run(&async |tx| retained::get(tx, broker.id, b"t", Read::Snapshot).await);
        let stored = body.and_then(|body| record::decode("t".into(), &body, &shared.clock));
        [
            broker.retained.get("t").map(|message| message.payload().to_vec()),
            stored.map(|m| m.payload().to_vec()),
        ]
    }

    #[test]
    fn memory_has_what_the_store_has_after_a_later_message_or_a_removal_is_refused() {
        let (shared, id) = Shared::with_broker(false);
        let broker = Arc::new(Broker::new(id, "default", 1));
        let mut writer = Writer::new(&shared);
        let both = |text: &[u8]| [Some(text.to_vec()), Some(text.to_vec())];
        let former = retain(&broker, b"former");
        writer.write(vec![former]);
        assert_eq!(kept(&shared, &broker), both(b"former"));
        let (earlier, refused) = (retain(&broker, b"earlier"), retain(&broker, b"refused"));
        writer.refuse_job(refused, Why::Passing);
        writer.write(vec![earlier]);
        assert_eq!(kept(&shared, &broker), both(b"earlier"));
        for payload in [&b""[..], b"refused"] {
            let refused = retain(&broker, payload);
            writer.refuse(vec![refused], Why::Failure);
            assert_eq!(kept(&shared, &broker), both(b"earlier"));
        }
    }
}
