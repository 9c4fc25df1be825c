//! Keeps the publishers whose connections are not read for now. No operation searches all of them, because thousands are paused
//! at once when the store or a mailbox is full.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use super::watched::Watched;
use crate::clock::Millis;
use crate::connection_id::ConnectionId;
use crate::core::publish_rates::PublishRates;

#[derive(Default)]
pub(in crate::core) struct Pauses {
    pub(in crate::core) paused: Deadlines,
    pub(in crate::core) rates: PublishRates,
    /// How many loops have an unfinished fan-out of a connection.
    pub(in crate::core) fanouts: HashMap<ConnectionId, u16, foldhash::fast::RandomState>,
    /// Publishers that wait for a receiver, by the slot of its connection.
    pub(in crate::core) for_receiver: HashMap<u32, PausedPublishers, foldhash::fast::RandomState>,
    /// Receivers that have written or are gone since [`crate::core::Core::relieve`] looked at them.
    pub(in crate::core) drained: VecDeque<u32>,
    pub(in crate::core) watched: Watched,
}

impl Pauses {
    #[inline]
    pub(in crate::core) fn note_drained(&mut self, receiver: u32) {
        if !self.for_receiver.is_empty()
            && let Some(waiting) = self.for_receiver.get_mut(&receiver)
            && !std::mem::replace(&mut waiting.is_listed, true)
        {
            self.drained.push_back(receiver);
        }
    }

    /// Lists all receivers, because the soft limit may have grown.
    pub(in crate::core) fn note_all_drained(&mut self) {
        let unlisted = self.for_receiver.iter_mut().filter(|(_, waiting)| !waiting.is_listed);
        self.drained.extend(unlisted.map(|(receiver, waiting)| {
            waiting.is_listed = true;
            *receiver
        }));
    }

    pub(in crate::core) fn pop_for(&mut self, receiver: u32) -> Option<ConnectionId> {
        let waiting = self.for_receiver.get_mut(&receiver)?;
        let publisher = waiting.pop();
        if waiting.order.is_empty() {
            self.for_receiver.remove(&receiver);
        }
        publisher
    }
}

/// Paused publishers of one core, by the time at which they are read again at the latest.
#[derive(Default)]
pub(in crate::core) struct Deadlines {
    of: HashMap<ConnectionId, Millis, foldhash::fast::RandomState>,
    order: BTreeSet<(Millis, u32, u32)>,
}

impl Deadlines {
    pub(in crate::core) fn len(&self) -> usize {
        self.of.len()
    }

    pub(in crate::core) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    pub(in crate::core) fn contains(&self, id: ConnectionId) -> bool {
        self.of.contains_key(&id)
    }

    /// Replaces the deadline that the publisher has.
    pub(in crate::core) fn set(&mut self, id: ConnectionId, at: Millis) {
        self.remove(id);
        self.of.insert(id, at);
        self.order.insert((at, id.slot, id.generation));
    }

    /// Moves the deadline of a paused publisher, unless it is later already.
    pub(in crate::core) fn put_off(&mut self, id: ConnectionId, at: Millis) {
        if self.of.get(&id).is_some_and(|before| *before < at) {
            self.set(id, at);
        }
    }

    pub(in crate::core) fn remove(&mut self, id: ConnectionId) {
        if let Some(at) = self.of.remove(&id) {
            self.order.remove(&(at, id.slot, id.generation));
        }
    }

    /// The publisher with the earliest deadline, if that has come. It stays until [`Self::remove`] or [`Self::set`].
    pub(in crate::core) fn due(&self, core: u16, now: Millis) -> Option<ConnectionId> {
        let (at, slot, generation) = *self.order.first()?;
        (at <= now).then_some(ConnectionId { core, slot, generation })
    }
}

/// Publishers in the order in which they began to wait; none is there twice.
#[derive(Default)]
pub(in crate::core) struct PausedPublishers {
    order: VecDeque<ConnectionId>,
    pub(in crate::core) is_listed: bool,
    members: HashSet<ConnectionId, foldhash::fast::RandomState>,
}

impl PausedPublishers {
    pub(in crate::core) fn push(&mut self, id: ConnectionId) {
        if self.members.insert(id) {
            self.order.push_back(id);
        }
    }

    pub(in crate::core) fn forget_first(&mut self) {
        self.pop();
    }

    fn pop(&mut self) -> Option<ConnectionId> {
        let id = self.order.pop_front()?;
        self.members.remove(&id);
        Some(id)
    }

    pub(in crate::core) fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(slot: u32) -> ConnectionId {
        ConnectionId { core: 0, slot, generation: 1 }
    }

    #[test]
    fn deadlines_come_in_their_order_and_the_last_one_set_counts() {
        let mut deadlines = Deadlines::default();
        [(1, 30), (2, 10), (3, 20)].into_iter().for_each(|(slot, at)| deadlines.set(id(slot), at));
        deadlines.set(id(2), 25);
        assert_eq!((deadlines.due(0, 19), deadlines.due(0, 25)), (None, Some(id(3))));
        deadlines.remove(id(3));
        assert_eq!((deadlines.due(0, 25), deadlines.len()), (Some(id(2)), 2));
        deadlines.remove(id(3));
        deadlines.remove(id(2));
        assert_eq!((deadlines.due(0, 30), deadlines.contains(id(2))), (Some(id(1)), false));
        deadlines.remove(id(1));
        assert!(deadlines.is_empty() && deadlines.due(0, u64::MAX).is_none());
    }

    #[test]
    fn a_publisher_waits_once_for_a_receiver() {
        let mut waiting = PausedPublishers::default();
        [1, 2, 1].into_iter().for_each(|slot| waiting.push(id(slot)));
        assert_eq!((waiting.pop(), waiting.pop(), waiting.pop()), (Some(id(1)), Some(id(2)), None));
        [1, 2].into_iter().for_each(|slot| waiting.push(id(slot)));
        waiting.forget_first();
        assert_eq!((waiting.len(), waiting.pop()), (1, Some(id(2))));
    }
}
