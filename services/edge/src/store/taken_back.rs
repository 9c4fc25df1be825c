//! Corrects retained messages in memory after the store has refused some, in one process.
//!
//! Memory gets a retained message before its commit, and a job writes what memory has for its topic. After a refusal memory gets what
//! the store has. The store does not have yet what earlier jobs will write: those of a transaction in doubt, and those of the backlog.
//! Memory lags behind these, and behind jobs that a turn has yet to submit, until they are done. So meanwhile each job writes its own
//! message, and its commit puts that into memory.

use std::sync::Arc;

use millrace_layers::retained;
use millrace_session::Message;
use millrace_storage::{Read, block_on};

use super::writer::Writer;
use super::{Job, PublishWrite, StoreContext, Write, record};
use crate::broker::{Broker, Reservation};
use crate::routes::Routes;

#[derive(Default)]
pub(super) struct TakenBack {
    /// Retained messages of the transaction whose outcome is unknown, in order.
    doubtful: Vec<(u64, Arc<Message>)>,
    /// A message was taken back, and not all jobs that were queued at that time have ended.
    lags: bool,
}

impl TakenBack {
    pub(super) fn begin_doubt(&mut self, batch: &[Job]) {
        self.doubtful = batch.iter().filter_map(retained_by).collect();
    }

    pub(super) fn end_doubt(&mut self) {
        self.doubtful.clear();
    }

    /// The writer has no job.
    pub(super) fn note_idle(&mut self, shared: &StoreContext) {
        self.lags &= shared.has_unwritten_retained();
    }

    pub(super) fn memory_lags(&self) -> bool {
        self.lags
    }
}

fn retained_by(job: &Job) -> Option<(u64, Arc<Message>)> {
    match &job.write {
        Write::Publish(PublishWrite { retains: true, routes, message, .. }) => {
            Some((routes.broker.id, message.clone()))
        }
        _ => None,
    }
}

impl StoreContext {
    pub(super) fn reserve_in_memory(&self) -> Reservation {
        Reservation::InMemory(self.upkeep.in_memory.clone())
    }

    pub(super) fn has_unwritten_retained(&self) -> bool {
        Arc::strong_count(&self.upkeep.in_memory) > 1
    }
}

impl Writer<'_> {
    /// A retained message that is not stored leaves memory. With several pods memory does not have it yet.
    pub(super) fn take_back(&mut self, publish: &PublishWrite) {
        let PublishWrite { message, routes, retains, .. } = publish;
        if !retains || self.shared.is_shared {
            return;
        }
        self.taken_back.lags = true;
        let (topic, broker) = (message.topic(), routes.broker.id);
        let is_of_topic =
            |doubtful: &&(u64, Arc<Message>)| doubtful.0 == broker && doubtful.1.topic() == topic;
        let former = match self.taken_back.doubtful.iter().rev().find(is_of_topic) {
            Some((_, message)) => Some(message.clone()),
            None => self.retained_in_store(broker, topic),
        };
        routes.broker.take_back(message, former);
    }

    fn retained_in_store(&self, broker: u64, topic: &Arc<str>) -> Option<Arc<Message>> {
        let shared = self.shared;
        let read =
            shared.layers.run(async |tx| retained::get(&tx, broker, topic.as_bytes(), Read::Snapshot).await);
        let body = block_on(read).unwrap_or_default()?;
        let message = record::decode(topic.clone(), &body, &shared.clock)?;
        message.set_position(None);
        Some(Arc::new(message))
    }

    /// Memory gets a will with its commit: returns the receivers of that moment (P6).
    pub(super) fn retain_will(&mut self, broker: &Arc<Broker>, will: &Arc<Message>) -> Arc<Routes> {
        if self.shared.is_shared || !will.is_retained() {
            self.retain_committed(broker, will, will.is_retained());
            return self.routes.get(broker, will.topic());
        }
        let subscriptions = broker.retain(will);
        self.routes.get_at(broker, will.topic(), &subscriptions)
    }

    /// With several pods memory follows the order of the commits (P6).
    pub(super) fn retain_committed(&self, broker: &Broker, message: &Arc<Message>, retains: bool) {
        if !retains {
            return;
        }
        if !self.shared.is_shared {
            if self.taken_back.lags {
                broker.retain_again(message);
            }
        } else if let Some(position) = message.position() {
            drop(broker.retain_at(message, position));
        }
    }
}
