//! Messages from a client that are not completed: QoS 2 packet ids until PUBREL.

use hashbrown::HashMap;
use millrace_mqtt::PacketId;

/// Where a QoS 2 message from a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receipt {
    /// It was handed to the caller, who has not said yet that it is where it must be.
    Pending,
    /// PUBREC may be sent, again and again.
    Received,
}

/// QoS 2 packet ids from PUBLISH until PUBREL; part of the session.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    ids: Option<Box<HashMap<PacketId, Receipt, foldhash::fast::FixedState>>>,
}

impl Inbound {
    /// A new message, pending.
    pub(crate) fn insert(&mut self, id: PacketId) {
        self.ids.get_or_insert_default().insert(id, Receipt::Pending);
    }

    /// The message is where it must be. False when its id is not known any more.
    pub(crate) fn receive(&mut self, id: PacketId) -> bool {
        let Some(receipt) = self.ids.as_mut().and_then(|ids| ids.get_mut(&id)) else { return false };
        *receipt = Receipt::Received;
        true
    }

    /// False when the id is not known.
    pub(crate) fn remove(&mut self, id: PacketId) -> bool {
        let Some(ids) = &mut self.ids else { return false };
        let known = ids.remove(&id).is_some();
        if ids.is_empty() && ids.capacity() > 64 {
            self.ids = None;
        }
        known
    }

    pub(crate) fn get(&self, id: PacketId) -> Option<Receipt> {
        self.ids.as_ref()?.get(&id).copied()
    }
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
