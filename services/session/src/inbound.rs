//! Messages from a client that are not completed: QoS 2 packet ids until PUBREL.

use hashbrown::HashSet;
use millrace_mqtt::PacketId;

/// QoS 2 packet ids from PUBLISH until PUBREL; part of the session.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    ids: Option<Box<HashSet<PacketId, foldhash::fast::FixedState>>>,
}

impl Inbound {
    /// False when the id is known already: the PUBLISH is a repeat.
    pub(crate) fn insert(&mut self, id: PacketId) -> bool {
        self.ids.get_or_insert_default().insert(id)
    }

    /// False when the id is not known.
    pub(crate) fn remove(&mut self, id: PacketId) -> bool {
        let Some(ids) = &mut self.ids else { return false };
        let known = ids.remove(&id);
        if ids.is_empty() && ids.capacity() > 64 {
            self.ids = None;
        }
        known
    }

    pub(crate) fn contains(&self, id: PacketId) -> bool {
        self.ids.as_ref().is_some_and(|ids| ids.contains(&id))
    }
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
