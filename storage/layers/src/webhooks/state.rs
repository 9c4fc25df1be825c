//! The stored state of a webhook: cursor, attempts, counters and lease.

use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};

use super::WebhookId;
use crate::{
    error::{LayerError, LayerResult},
    position::Position,
    tags,
};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WebhookState {
    /// Events up to here were delivered or left the queue.
    pub(super) cursor: Position,
    /// Until the cursor reaches this position, events are delivered one at a time, because one of them was refused.
    pub(super) one_by_one_until: Position,
    /// Failed ones since the last success or dead letter.
    pub attempts: u32,
    /// Time of the first failed attempt, unix milliseconds; 0 after a success.
    pub failing_since_ms: u64,
    pub next_attempt_ms: u64,
    /// Time of the last delivery, unix milliseconds; 0 for none.
    pub last_success_ms: u64,
    pub last_failure: Option<DeliveryFailure>,
    pub delivered: u64,
    /// All events that became dead letters; [`WebhookState::dead_letters`] are present.
    pub dead: u64,
    /// Events that a limit removed, or that were queued when their filter was removed.
    pub lost: u64,
    /// Dead letters that a limit removed or left out.
    #[serde(rename = "letters_lost")]
    pub dead_letters_lost: u64,
    #[serde(rename = "deliveries")]
    pub(super) last_attempt_number: u64,
    /// Renamed, like the other fields, because stored records have the old name.
    #[serde(rename = "letters")]
    pub dead_letters: u32,
    #[serde(rename = "letter_bytes")]
    pub dead_letter_bytes: u64,
    /// Numbers of the keys that signed the last attempt.
    pub signed_by: Vec<u32>,
    /// Each delivery that begins raises it, and fences off the deliveries before.
    pub(super) epoch: u64,
    pub(super) lease: Option<Lease>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lease {
    pub(super) owner: String,
    pub(super) until_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryFailure {
    pub at_ms: u64,
    /// HTTP status of the answer; `None` without an answer.
    pub status: Option<u16>,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signed_by: Vec<u32>,
}

impl Serialize for Position {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Position {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

pub(super) async fn get(tx: &Transaction, webhook: WebhookId<'_>, read: Read) -> LayerResult<WebhookState> {
    let Some(row) = tx.get(webhook.key(tags::WEBHOOK_STATE), read).await? else {
        return Ok(WebhookState::default());
    };
    serde_json::from_slice(&row).map_err(|_| LayerError::Corrupt("state of a webhook"))
}

pub(super) fn set(tx: &Transaction, webhook: WebhookId<'_>, state: &WebhookState) -> LayerResult<()> {
    let row = serde_json::to_vec(state).map_err(|_| LayerError::Corrupt("state of a webhook"))?;
    Ok(tx.set(webhook.key(tags::WEBHOOK_STATE), row)?)
}
