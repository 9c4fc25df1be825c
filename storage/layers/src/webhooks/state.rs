//! How far a webhook has come.

use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};

use super::Hook;
use crate::{
    error::{Error, Result},
    position::Position,
    tags,
};

/// How far a webhook has come, and how it went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// All up to here was delivered, or is no longer in the queue.
    pub(super) cursor: Position,
    /// While the cursor is before it, one event is told at a time: among those up to here one was refused.
    pub(super) one_by_one_until: Position,
    /// Attempts at what is first in the queue that have failed.
    pub attempts: u32,
    /// Since when they fail, unix milliseconds; 0: the last one did not.
    pub failing_since_ms: u64,
    /// Not tried before that, unix milliseconds.
    pub next_attempt_ms: u64,
    /// When something was last delivered, unix milliseconds; 0: never.
    pub last_success_ms: u64,
    /// The last attempt that failed.
    pub last_failure: Option<Failure>,
    /// Events that were delivered.
    pub delivered: u64,
    /// Events that became letters.
    pub dead: u64,
    /// Events that a limit of the queue removed, or that were in it when their filter was.
    pub lost: u64,
    /// Letters that a limit removed.
    pub letters_lost: u64,
    /// Letters that are kept.
    pub letters: u32,
    /// Bytes of their events.
    pub letter_bytes: u64,
    /// Grows with each lease.
    pub(super) epoch: u64,
    pub(super) lease: Option<Lease>,
}

/// Who delivers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lease {
    pub(super) owner: String,
    pub(super) until_ms: u64,
}

/// An attempt that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// When, unix milliseconds.
    pub at_ms: u64,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// What happened.
    pub reason: String,
}

/// In JSON a position is hexadecimal.
impl Serialize for Position {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Position {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

pub(super) async fn get(tx: &Transaction, hook: Hook<'_>, read: Read) -> Result<State> {
    let Some(row) = tx.get(hook.key(tags::HOOK), read).await? else { return Ok(State::default()) };
    serde_json::from_slice(&row).map_err(|_| Error::Corrupt("state of a webhook"))
}

pub(super) fn set(tx: &Transaction, hook: Hook<'_>, state: &State) -> Result<()> {
    let row = serde_json::to_vec(state).map_err(|_| Error::Corrupt("state of a webhook"))?;
    Ok(tx.set(hook.key(tags::HOOK), row)?)
}
