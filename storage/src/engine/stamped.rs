//! Keys of an open transaction that will get the versionstamp of its commit.

use bytes::Bytes;

use super::range_set::RangeSet;
use crate::{
    key::KeyRange,
    version::{StoreVersion, Versionstamp},
};

pub(super) struct Stamped {
    pub(super) template: Vec<u8>,
    pub(super) offset: usize,
    pub(super) value: Bytes,
}

impl Stamped {
    pub(super) fn resolve(mut self, stamp: Versionstamp) -> (Bytes, Bytes) {
        self.template[self.offset..self.offset + Versionstamp::LEN].copy_from_slice(&stamp.0);
        (self.template.into(), self.value)
    }

    /// All keys that this one may become if the transaction commits after `read_version`.
    fn possible(&self, read_version: StoreVersion) -> KeyRange {
        let prefix = &self.template[..self.offset];
        let first = Versionstamp::new(read_version.saturating_add(1), 0);
        KeyRange::new([prefix, &first.0].concat(), [prefix, &[0xff; Versionstamp::LEN]].concat())
    }
}

#[derive(Default)]
pub(super) struct StampedKeys {
    all: Vec<Stamped>,
    /// The keys that the first `unreadable_count` entries may get.
    unreadable: RangeSet,
    unreadable_count: usize,
}

impl StampedKeys {
    pub(super) fn push(&mut self, stamped: Stamped) {
        self.all.push(stamped);
    }

    #[cfg(feature = "foundationdb")]
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A cleared range deletes a future key only if it covers all stamps, because a new stamp is
    /// greater than all stamps in the store.
    pub(super) fn clear_range(&mut self, range: &KeyRange) {
        if self.all.is_empty() {
            return;
        }
        self.all.retain(|stamped| {
            let possible = stamped.possible(0);
            range.begin > possible.begin || range.end < possible.end
        });
        (self.unreadable, self.unreadable_count) = (RangeSet::default(), 0);
    }

    /// True when `range` may contain a key of this transaction, whose name is unknown before the
    /// commit.
    pub(super) fn is_unreadable(&mut self, range: &KeyRange, read_version: StoreVersion) -> bool {
        for stamped in &self.all[self.unreadable_count..] {
            self.unreadable.insert(stamped.possible(read_version));
        }
        self.unreadable_count = self.all.len();
        !self.unreadable.is_empty() && self.unreadable.intersects(range)
    }

    pub(super) fn into_vec(self) -> Vec<Stamped> {
        self.all
    }
}
