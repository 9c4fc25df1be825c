//! Messages from a client that are not completed: QoS 2 packet ids until PUBREL.

use hashbrown::HashMap;
use millrace_mqtt::PacketId;

/// Where a QoS 2 message from a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receipt {
    /// It was handed to the caller, who has not said yet that it is where it must be.
    Pending,
    /// PUBREC may be sent, again and again.
    Received {
        /// The store knows the id, so it must forget it before the client may use it again.
        kept: bool,
    },
    /// PUBREL came; PUBCOMP waits until the store has forgotten the id.
    Released,
}

/// QoS 2 packet ids from PUBLISH until PUBREL; part of the session.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    ids: Option<Box<HashMap<PacketId, Receipt, foldhash::fast::FixedState>>>,
}

impl Inbound {
    /// A new message, pending.
    pub(crate) fn insert(&mut self, id: PacketId) {
        self.set(id, Receipt::Pending);
    }

    pub(crate) fn set(&mut self, id: PacketId, receipt: Receipt) {
        self.ids.get_or_insert_default().insert(id, receipt);
    }

    /// The message is where it must be; `kept` says that the store knows the id too. False when the id is not known any
    /// more.
    pub(crate) fn receive(&mut self, id: PacketId, kept: bool) -> bool {
        let Some(receipt) = self.ids.as_mut().and_then(|ids| ids.get_mut(&id)) else { return false };
        *receipt = Receipt::Received { kept };
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

    /// Ids of messages that are where they must be, but that the store does not know.
    pub(crate) fn unkept(&self) -> impl Iterator<Item = PacketId> {
        let unkept = |(id, receipt): (&PacketId, &Receipt)| {
            (*receipt == Receipt::Received { kept: false }).then_some(*id)
        };
        self.ids.iter().flat_map(|ids| ids.iter()).filter_map(unkept)
    }
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
