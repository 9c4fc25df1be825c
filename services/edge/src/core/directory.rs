//! Finds the session of a client id, and the user of a session that waits in memory.

use hashbrown::HashTable;

use super::attach::InMemoryUsers;

/// Session slots by the hash of (broker, client id). Only the sessions have the names.
#[derive(Debug, Default)]
pub(super) struct Directory {
    slots: HashTable<(u32, u32)>,
    pub(super) users: InMemoryUsers,
}

/// The upper half of a hash. It is stored with each slot, so that a growing table need not read the sessions.
fn half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// A hash of 64 bits from the stored half, because the table uses its upper and its lower bits.
fn spread(half: u32) -> u64 {
    u64::from(half).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Directory {
    pub(crate) fn find(&self, hash: u64, is_wanted: impl Fn(u32) -> bool) -> Option<u32> {
        let half = half(hash);
        self.slots.find(spread(half), |(of, slot)| *of == half && is_wanted(*slot)).map(|(_, slot)| *slot)
    }

    pub(crate) fn insert(&mut self, hash: u64, slot: u32) {
        let half = half(hash);
        self.slots.insert_unique(spread(half), (half, slot), |(of, _)| spread(*of));
    }

    pub(crate) fn remove(&mut self, hash: u64, slot: u32) {
        let half = half(hash);
        if let Ok(entry) = self.slots.find_entry(spread(half), |entry| *entry == (half, slot)) {
            entry.remove();
        }
    }
}
