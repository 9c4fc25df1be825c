//! Ranges that were cleared and not written to since. A stream is trimmed by clearing a range from its beginning again
//! and again; without this, each clear would read every earlier tombstone.

use crate::{engine::range_set::RangeSet, key::KeyRange};

/// Most ranges remembered; beyond it all are forgotten, which costs only time. About 150 bytes each.
const RANGES_MAX: usize = 200_000;

/// Keys known to be absent after all writes so far. Only the commit thread uses it.
#[derive(Default)]
pub(super) struct Emptied(RangeSet);

impl Emptied {
    /// The parts of a range that may have keys.
    pub(super) fn unknown(&self, range: &KeyRange) -> Vec<KeyRange> {
        self.0.gaps(range)
    }

    pub(super) fn cleared(&mut self, range: KeyRange) {
        if self.0.len() >= RANGES_MAX {
            self.0 = RangeSet::default();
        }
        self.0.insert(range);
    }

    pub(super) fn wrote(&mut self, key: &[u8]) {
        if !self.0.is_empty() {
            self.0.remove(key);
        }
    }
}
