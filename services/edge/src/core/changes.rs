//! SUBSCRIBE and UNSUBSCRIBE packets that wait for the end of their turn.
//!
//! An edit of a broker's filters copies a path of the trie for each filter, publishes a new version and makes all
//! loops check their cached routes. The packets of one turn and broker are therefore one edit. A connection's next
//! packet of another kind first triggers the edit, because the packet must find the subscriptions. So does a PUBLISH of
//! any of the broker's clients on this loop, because a message that arrives after a SUBSCRIBE belongs to its subscriber. So does a
//! DISCONNECT of the server, because no SUBACK may follow it. The waiting packets of a lost connection are dropped,
//! because its client has seen no SUBACK.
//!
//! A SUBSCRIBE that takes several turns gets the messages of other clients that arrive meanwhile only for the filters of
//! its earlier turns. MQTT promises messages from the SUBACK on, and a publisher must not wait for another client's packet.

use std::collections::HashMap;
use std::sync::Arc;

use super::work::{FILTERS_WORK_MAX, PacketTask};
use crate::broker::Broker;
use crate::connection_id::ConnectionId;

/// Packets of one broker's clients, in order of arrival.
pub(super) type ChangeQueue = Vec<(ConnectionId, PacketTask)>;

#[derive(Default)]
pub(super) struct FilterChanges {
    of: HashMap<u64, WaitingChanges, foldhash::fast::FixedState>,
}

struct WaitingChanges {
    broker: Arc<Broker>,
    changes: ChangeQueue,
    work: u64,
}

impl FilterChanges {
    /// Adds a packet whose edit takes `work`. Returns the broker's packets once they are as much work as one edit may
    /// do, because other loops cannot edit the broker's filters meanwhile.
    pub(super) fn add(
        &mut self,
        broker: &Arc<Broker>,
        connection: ConnectionId,
        task: PacketTask,
        work: u64,
    ) -> Option<(Arc<Broker>, ChangeQueue)> {
        let waiting = self.of.entry(broker.id).or_insert_with(|| WaitingChanges {
            broker: broker.clone(),
            changes: Vec::new(),
            work: 0,
        });
        waiting.changes.push((connection, task));
        waiting.work += work;
        if waiting.work < FILTERS_WORK_MAX {
            return None;
        }
        self.take(broker.id)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub(super) fn take(&mut self, broker: u64) -> Option<(Arc<Broker>, ChangeQueue)> {
        self.of.remove(&broker).map(|waiting| (waiting.broker, waiting.changes))
    }

    pub(super) fn pop(&mut self) -> Option<(Arc<Broker>, ChangeQueue)> {
        let broker = *self.of.keys().next()?;
        self.take(broker)
    }
}

#[cfg(test)]
mod tests;
