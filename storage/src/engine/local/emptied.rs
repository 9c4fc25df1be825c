//! Remembers ranges that were cleared and not written to since.
//!
//! A stream is trimmed by clearing a range from its beginning again and again. Without this memory,
//! each clear would read every earlier tombstone.

use crate::{engine::range_set::RangeSet, key::KeyRange};

/// Ranges of about 150 bytes each; with more, all are forgotten, which costs only time.
const RANGES_MAX: usize = 200_000;

#[derive(Default)]
pub(super) struct Emptied(RangeSet);

impl Emptied {
    pub(super) fn maybe_written(&self, range: &KeyRange) -> Vec<KeyRange> {
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
