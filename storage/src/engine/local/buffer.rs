//! Buffers the writes of a transaction, and shows their effect on its own reads.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::request::Mutation;
use crate::{
    engine::{
        range_set::RangeSet,
        stamped::{Stamped, StampedKeys},
    },
    key::KeyRange,
    version::StoreVersion,
};

#[derive(Clone)]
pub(super) enum Op {
    Set(Bytes),
    Clear,
    Add(i64),
}

#[derive(Default)]
pub(super) struct Buffer {
    /// Keys written since a cleared range covered them.
    keys: BTreeMap<Bytes, Op>,
    cleared: RangeSet,
    /// Keys that get the versionstamp at the commit; until then no read sees them.
    stamped: StampedKeys,
}

impl Buffer {
    pub(super) fn set(&mut self, key: Bytes, value: Bytes) {
        self.keys.insert(key, Op::Set(value));
    }

    pub(super) fn clear(&mut self, key: Bytes) {
        self.keys.insert(key, Op::Clear);
    }

    pub(super) fn clear_range(&mut self, range: KeyRange) {
        let inside: Vec<Bytes> =
            self.keys.range::<Bytes, _>(&range.begin..&range.end).map(|(key, _)| key.clone()).collect();
        for key in inside {
            self.keys.remove(&key);
        }
        self.stamped.clear_range(&range);
        self.cleared.insert(range);
    }

    pub(super) fn add(&mut self, key: Bytes, addend: i64) {
        let op = match self.seen(&key) {
            Some(Op::Set(value)) => Op::Set(add(Some(value), addend)),
            Some(Op::Clear) => Op::Set(add(None, addend)),
            Some(Op::Add(before)) => Op::Add(before.wrapping_add(addend)),
            None => Op::Add(addend),
        };
        self.keys.insert(key, op);
    }

    pub(super) fn set_stamped(&mut self, stamped: Stamped) {
        self.stamped.push(stamped);
    }

    /// `None` when the transaction did not write the key.
    pub(super) fn seen(&self, key: &[u8]) -> Option<Op> {
        let written = self.keys.get(key).cloned();
        written.or_else(|| self.cleared.contains(key).then_some(Op::Clear))
    }

    pub(super) fn is_untouched(&self) -> bool {
        self.keys.is_empty() && self.cleared.is_empty()
    }

    pub(super) fn written(&self, range: &KeyRange) -> Vec<(Bytes, Op)> {
        let keys = self.keys.range::<Bytes, _>(&range.begin..&range.end);
        keys.map(|(key, op)| (key.clone(), op.clone())).collect()
    }

    pub(super) fn cleared(&self) -> &RangeSet {
        &self.cleared
    }

    pub(super) fn is_unreadable(&mut self, range: &KeyRange, read_version: StoreVersion) -> bool {
        self.stamped.is_unreadable(range, read_version)
    }

    /// Returns the changes in the order that gives the result which the transaction saw.
    pub(super) fn into_mutations(self) -> Vec<Mutation> {
        let stamped = self.stamped.into_vec();
        let mut mutations = Vec::with_capacity(self.keys.len() + stamped.len() + 1);
        mutations.extend(self.cleared.into_ranges().map(Mutation::ClearRange));
        mutations.extend(self.keys.into_iter().map(|(key, op)| match op {
            Op::Set(value) => Mutation::Set(key, value),
            Op::Clear => Mutation::Clear(key),
            Op::Add(addend) => Mutation::Add(key, addend),
        }));
        mutations.extend(stamped.into_iter().map(Mutation::SetStamped));
        mutations
    }
}

/// As in FoundationDB, a value of another length is cut or filled with zeros to eight bytes.
pub(super) fn add(value: Option<Bytes>, addend: i64) -> Bytes {
    let mut bytes = [0; size_of::<i64>()];
    if let Some(value) = value {
        let length = value.len().min(bytes.len());
        bytes[..length].copy_from_slice(&value[..length]);
    }
    let sum = i64::from_le_bytes(bytes).wrapping_add(addend);
    Bytes::copy_from_slice(&sum.to_le_bytes())
}
