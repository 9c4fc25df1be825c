//! A transaction on its way to the commit thread.

use std::{any::Any, sync::Arc};

use bytes::Bytes;

use crate::{
    completion::Completion,
    key::KeyRange,
    version::{Version, Versionstamp},
};

/// What a transaction read and wrote.
pub(super) struct Request {
    /// What was read; `None` when nothing was.
    pub(super) base: Option<Base>,
    /// What must not have changed since.
    pub(super) reads: Vec<KeyRange>,
    /// What counts as written beside the mutations.
    pub(super) write_conflicts: Vec<KeyRange>,
    pub(super) mutations: Vec<Mutation>,
    /// Whether it makes room.
    pub(super) cleanup: bool,
    /// Bytes of the mutations.
    pub(super) bytes: usize,
    pub(super) done: Completion,
}

/// The state that a transaction read. Held until it was checked: while somebody holds a state, what was written since is
/// remembered.
pub(super) struct Base {
    pub(super) version: Version,
    pub(super) _held: Arc<dyn Any + Send + Sync>,
}

/// One change, in the order of the transaction.
pub(super) enum Mutation {
    Set(Bytes, Bytes),
    Clear(Bytes),
    ClearRange(KeyRange),
    Add(Bytes, i64),
    SetStamped(Stamped),
}

impl Mutation {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Set(key, value) => key.len() + value.len(),
            Self::Clear(key) | Self::Add(key, _) => key.len(),
            Self::ClearRange(range) => range.begin.len() + range.end.len(),
            Self::SetStamped(stamped) => stamped.template.len() + stamped.value.len(),
        }
    }
}

/// Whether changes delete something, and beside that only count.
pub(super) fn only_deletes(mutations: &[Mutation]) -> bool {
    let deletes = |mutation: &Mutation| matches!(mutation, Mutation::Clear(_) | Mutation::ClearRange(_));
    mutations.iter().any(deletes)
        && mutations.iter().all(|mutation| deletes(mutation) || matches!(mutation, Mutation::Add(..)))
}

/// A key that gets the commit's versionstamp.
pub(super) struct Stamped {
    pub(super) template: Vec<u8>,
    pub(super) offset: usize,
    pub(super) value: Bytes,
}

impl Stamped {
    /// Key and value with this stamp.
    pub(super) fn resolve(mut self, stamp: Versionstamp) -> (Bytes, Bytes) {
        self.template[self.offset..self.offset + Versionstamp::LEN].copy_from_slice(&stamp.0);
        (self.template.into(), self.value)
    }

    /// All keys that it can be, when it commits after `read_version`.
    pub(super) fn possible(&self, read_version: Version) -> KeyRange {
        let prefix = &self.template[..self.offset];
        let first = Versionstamp::new(read_version.saturating_add(1), 0);
        KeyRange::new([prefix, &first.0].concat(), [prefix, &[0xff; Versionstamp::LEN]].concat())
    }
}
