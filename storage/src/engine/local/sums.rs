//! Remembers counters that were added to lately, so that the commit thread need not read them from
//! the store for the next addition.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::key::KeyRange;

/// Counters of about 150 bytes each; with more, all are forgotten, which costs only time.
const SUMS_MAX: usize = 100_000;

#[derive(Default)]
pub(super) struct Sums(BTreeMap<Bytes, Bytes>);

impl Sums {
    pub(super) fn get(&self, key: &Bytes) -> Option<Bytes> {
        self.0.get(key).cloned()
    }

    pub(super) fn added(&mut self, key: Bytes, sum: Bytes) {
        if self.0.len() >= SUMS_MAX {
            self.0.clear();
        }
        self.0.insert(key, sum);
    }

    pub(super) fn wrote(&mut self, key: &Bytes) {
        if !self.0.is_empty() {
            self.0.remove(key);
        }
    }

    pub(super) fn cleared(&mut self, range: &KeyRange) {
        while let Some((key, _)) = self.0.range::<Bytes, _>(&range.begin..&range.end).next() {
            let key = key.clone();
            self.0.remove(&key);
        }
    }
}
