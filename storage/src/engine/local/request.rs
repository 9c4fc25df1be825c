//! A transaction on its way to the commit thread.

use std::{any::Any, sync::Arc};

use bytes::Bytes;

use crate::{completion::Completion, engine::stamped::Stamped, key::KeyRange, version::Version};

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
