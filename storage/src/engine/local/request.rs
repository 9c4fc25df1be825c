//! A transaction on its way to the commit thread.

use std::{any::Any, sync::Arc};

use bytes::Bytes;

use crate::{completion::Completion, engine::stamped::Stamped, key::KeyRange, version::StoreVersion};

pub(super) struct CommitRequest {
    /// The state that was read; `None` when nothing was read.
    pub(super) base: Option<Base>,
    /// Ranges that must be unchanged since `base`.
    pub(super) reads: Vec<KeyRange>,
    /// Ranges that conflict with later readers although nothing is written to them.
    pub(super) write_conflicts: Vec<KeyRange>,
    pub(super) mutations: Vec<Mutation>,
    pub(super) frees_space: bool,
    pub(super) bytes: usize,
    pub(super) done: Completion,
}

/// The state that a transaction read, held until the check, because the resolver remembers writes
/// since the oldest state in use.
pub(super) struct Base {
    pub(super) version: StoreVersion,
    pub(super) _held: Arc<dyn Any + Send + Sync>,
}

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

pub(super) fn only_deletes(mutations: &[Mutation]) -> bool {
    let deletes = |mutation: &Mutation| matches!(mutation, Mutation::Clear(_) | Mutation::ClearRange(_));
    mutations.iter().any(deletes)
        && mutations.iter().all(|mutation| deletes(mutation) || matches!(mutation, Mutation::Add(..)))
}
