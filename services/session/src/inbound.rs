use hashbrown::HashMap;
use millrace_mqtt::PacketId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receipt {
    /// The message is not confirmed as stored or delivered yet.
    Pending,
    /// PUBREC can be sent, also repeatedly.
    Received {
        /// The store has the id and must delete it before the client can use it again.
        kept: bool,
    },
    /// PUBREL has arrived; PUBCOMP waits until the store has deleted the id.
    Released,
}

/// QoS 2 packet ids of a session from PUBLISH until PUBREL.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    ids: Option<Box<HashMap<PacketId, Receipt, foldhash::fast::FixedState>>>,
}

impl Inbound {
    pub(crate) fn insert(&mut self, id: PacketId) {
        self.set(id, Receipt::Pending);
    }

    pub(crate) fn set(&mut self, id: PacketId, receipt: Receipt) {
        self.ids.get_or_insert_default().insert(id, receipt);
    }

    /// `kept`: the store has the packet id, too. False when the id is unknown.
    pub(crate) fn receive(&mut self, id: PacketId, kept: bool) -> bool {
        let Some(receipt) = self.ids.as_mut().and_then(|ids| ids.get_mut(&id)) else { return false };
        *receipt = Receipt::Received { kept };
        true
    }

    pub(crate) fn remove(&mut self, id: PacketId) -> bool {
        let Some(ids) = &mut self.ids else { return false };
        let known = ids.remove(&id).is_some();
        if ids.is_empty() && ids.capacity() > crate::EMPTY_CAPACITY_MAX {
            self.ids = None;
        }
        known
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.as_ref().map_or(0, |ids| ids.len())
    }

    pub(crate) fn get(&self, id: PacketId) -> Option<Receipt> {
        self.ids.as_ref()?.get(&id).copied()
    }

    pub(crate) fn not_stored(&self) -> impl Iterator<Item = PacketId> {
        let not_stored = |(id, receipt): (&PacketId, &Receipt)| {
            (*receipt == Receipt::Received { kept: false }).then_some(*id)
        };
        self.ids.iter().flat_map(|ids| ids.iter()).filter_map(not_stored)
    }
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
