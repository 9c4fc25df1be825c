//! Ranges that were cleared and not written to since. A range that is cleared again and again from its beginning, as a
//! stream is trimmed, would otherwise cost each time a look at every tombstone that was ever left there.

use crate::{engine::range_set::RangeSet, key::KeyRange};

/// Ranges that are remembered, at most; beyond it all are forgotten, which costs only time. About 150 bytes each.
const RANGES_MAX: usize = 200_000;

/// What is known to be empty after all writes so far. Belongs to the commit thread.
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
