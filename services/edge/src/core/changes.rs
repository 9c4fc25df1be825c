//! SUBSCRIBE and UNSUBSCRIBE packets that wait for the end of their turn.
//!
//! An edit of a broker's filters copies a path of the trie for each filter, publishes a new version and makes the routes
//! that are cached on all loops look again. The packets of one turn and broker are therefore one edit. A connection's
//! next packet of another kind has the edit made before it is carried out, because it must find the subscriptions, and so
//! does a DISCONNECT of the server, because no SUBACK may follow it. What a connection that is lost has sent last is not
//! carried out: its client has seen no SUBACK.

use std::collections::HashMap;
use std::sync::Arc;

use super::connection::ConnectionId;
use super::work::{FILTERS, Task};
use crate::broker::Broker;

/// Packets of one broker's clients, in the order in which they came.
pub(super) type Changes = Vec<(ConnectionId, Task)>;

#[derive(Default)]
pub(super) struct FilterChanges {
    of: HashMap<u64, Waiting, foldhash::fast::FixedState>,
}

struct Waiting {
    broker: Arc<Broker>,
    changes: Changes,
    work: u64,
}

impl FilterChanges {
    /// Adds a packet whose edit takes `work`. Returns what waits for its broker once that is as much as one edit may do: other
    /// loops cannot edit the broker's filters meanwhile.
    pub(super) fn add(
        &mut self,
        broker: &Arc<Broker>,
        connection: ConnectionId,
        task: Task,
        work: u64,
    ) -> Option<(Arc<Broker>, Changes)> {
        let waiting = self.of.entry(broker.id).or_insert_with(|| Waiting {
            broker: broker.clone(),
            changes: Vec::new(),
            work: 0,
        });
        waiting.changes.push((connection, task));
        waiting.work += work;
        if waiting.work < FILTERS {
            return None;
        }
        self.take(broker.id)
    }

    /// Takes what waits for a broker.
    pub(super) fn take(&mut self, broker: u64) -> Option<(Arc<Broker>, Changes)> {
        self.of.remove(&broker).map(|waiting| (waiting.broker, waiting.changes))
    }

    /// Takes what waits for any broker.
    pub(super) fn pop(&mut self) -> Option<(Arc<Broker>, Changes)> {
        let broker = *self.of.keys().next()?;
        self.take(broker)
    }
}
