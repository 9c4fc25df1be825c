//! Requests and answers about webhooks, as the API shows them.

use millrace_layers::webhooks;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::secret::Secret;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WebhookStatus {
    /// Queued events. An event that two filters match counts twice.
    pub queued_events: u64,
    pub queued_bytes: u64,
    /// Time of the oldest queued event, in unix milliseconds.
    pub oldest_queued_at_ms: Option<u64>,
    pub delivered: u64,
    /// Events that became dead letters.
    pub dead: u64,
    /// Events lost to a limit of the queue, or because their filter was removed or the webhook disabled.
    pub lost: u64,
    pub dead_letters: u64,
    pub dead_letters_lost: u64,
    /// Time of the last delivery, in unix milliseconds.
    pub last_success_at_ms: Option<u64>,
    /// The last failed attempt, even if later attempts succeeded.
    pub last_failure: Option<WebhookFailure>,
    /// Failed attempts at the first event of the queue.
    pub attempts: u32,
    /// Time of the first of these failures, in unix milliseconds; null: the last attempt succeeded.
    pub failing_since_ms: Option<u64>,
    /// Time of the next attempt, in unix milliseconds; null: as soon as an event is queued.
    pub next_attempt_at_ms: Option<u64>,
    /// Numbers of the keys that signed the last attempt, the newest first; empty: it was not signed.
    pub signed_by: Vec<u32>,
    /// Number of the signing key; null: requests are not signed.
    pub key_number: Option<u32>,
    /// Number of the previous key while it signs too; null: it does not.
    pub previous_key_number: Option<u32>,
    /// End of the previous key, in unix milliseconds.
    pub previous_key_until_ms: Option<u64>,
}

/// Request to replace the signing key of a webhook.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyRotation {
    /// The new key. Left out: the server generates one.
    #[schema(value_type = Option<String>, format = Password, min_length = 1, max_length = 1024)]
    pub signing_key: Option<Secret>,
    /// Time for which the previous key signs too, in seconds: at most 30 days. Until then the header
    /// `millrace-signature` has two signatures, and the receiver verifies either. While a previous key signs, another
    /// rotation with an overlap is refused (409); one without an overlap ends both keys.
    #[serde(default)]
    #[schema(maximum = 2_592_000, default = 0, example = 86_400)]
    pub overlap_s: u32,
}

/// The signing keys of a webhook, without their text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RotatedKey {
    /// Number of the new key. The header `millrace-signature-keys` has the numbers of the keys of a request.
    pub key_number: u32,
    /// Number of the previous key while it signs too; null: it does not.
    pub previous_key_number: Option<u32>,
    /// End of the previous key, in unix milliseconds.
    pub previous_key_until_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WebhookFailure {
    pub at_ms: u64,
    /// HTTP status of the answer; null: there was no answer.
    #[schema(example = 503)]
    pub status: Option<u16>,
    #[schema(example = "the answer was 503 Service Unavailable")]
    pub reason: String,
    /// Numbers of the keys that signed the attempt, the newest first.
    pub signed_by: Vec<u32>,
}

impl From<webhooks::DeliveryFailure> for WebhookFailure {
    fn from(failure: webhooks::DeliveryFailure) -> Self {
        let webhooks::DeliveryFailure { at_ms, status, reason, signed_by } = failure;
        Self { at_ms, status, reason, signed_by }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WebhookDelivery {
    /// Number of the attempt since the webhook was made.
    pub number: u64,
    /// Begin of the attempt, in unix milliseconds.
    pub at_ms: u64,
    /// Time until the answer or the failure, in milliseconds.
    pub duration_ms: u64,
    /// Id of the first event of the request.
    #[schema(example = "00000000000000f30000000a")]
    pub event_id: String,
    /// Type of the first event of the request.
    #[schema(example = "millrace.message.published")]
    pub event_type: String,
    /// Number of events in the request.
    pub events: usize,
    /// Number of the attempt at these events: 1 for the first.
    pub attempt: u32,
    /// HTTP status of the answer; null: there was no answer.
    pub status: Option<u16>,
    /// Why the attempt failed; null: the receiver has accepted the events.
    pub error: Option<String>,
}

impl From<webhooks::DeliveryRecord> for WebhookDelivery {
    fn from(made: webhooks::DeliveryRecord) -> Self {
        let webhooks::DeliveryRecord {
            number,
            at_ms,
            duration_ms,
            event,
            kind,
            events,
            attempt,
            status,
            error,
        } = made;
        Self { number, at_ms, duration_ms, event_id: event, event_type: kind, events, attempt, status, error }
    }
}

/// An event that the receiver refused, or that could not be delivered for a day.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct DeadLetter {
    pub id: String,
    /// Time at which the server gave up, in unix milliseconds.
    pub at_ms: u64,
    pub attempts: u32,
    /// The last failure; null: the first attempt is still under way.
    pub failure: Option<WebhookFailure>,
    /// Whether it waits to be sent again.
    pub is_retried: bool,
    /// The event in the form in which it is sent.
    #[schema(value_type = Object)]
    pub event: Value,
}

impl From<webhooks::StoredDeadLetter> for DeadLetter {
    fn from(letter: webhooks::StoredDeadLetter) -> Self {
        Self {
            id: letter.id.to_string(),
            at_ms: letter.at_ms,
            attempts: letter.attempts,
            failure: letter.failure.map(Into::into),
            is_retried: letter.is_retried,
            event: serde_json::from_slice(&letter.event).unwrap_or_default(),
        }
    }
}

/// Number of dead letters that a request changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterCount {
    pub count: usize,
}
