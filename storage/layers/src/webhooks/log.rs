//! The latest deliveries of a webhook: a ring of rows, so that each delivery writes one short row.

use millrace_storage::{RangeOptions, Transaction};
use serde::{Deserialize, Serialize};

use super::{WebhookId, state::WebhookState};
use crate::{
    error::{LayerError, LayerResult},
    limits::{WEBHOOK_DELIVERIES_MAX, WEBHOOK_DELIVERY_TEXT_BYTES_MAX},
    tags,
};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeliveryRecord {
    /// Number of the attempt since the webhook was made; [`super::settle`] sets it.
    pub number: u64,
    pub at_ms: u64,
    pub duration_ms: u64,
    /// Id and type of the first event of the request.
    pub event: String,
    pub kind: String,
    pub events: usize,
    pub attempt: u32,
    pub status: Option<u16>,
    pub error: Option<String>,
}

/// Writes over the oldest delivery.
pub(super) fn add(
    tx: &Transaction,
    webhook: WebhookId<'_>,
    state: &mut WebhookState,
    made: &DeliveryRecord,
) -> LayerResult<()> {
    state.last_attempt_number += 1;
    let row = DeliveryRecord {
        number: state.last_attempt_number,
        event: bounded(&made.event),
        kind: bounded(&made.kind),
        error: made.error.as_deref().map(bounded),
        ..made.clone()
    };
    let row = serde_json::to_vec(&row).map_err(|_| CORRUPT)?;
    Ok(tx.set(webhook.key(tags::WEBHOOK_LOG).uint(state.last_attempt_number % WEBHOOK_DELIVERIES_MAX), row)?)
}

/// Reads the latest deliveries in a snapshot, the latest first.
pub async fn deliveries(tx: &Transaction, webhook: WebhookId<'_>) -> LayerResult<Vec<DeliveryRecord>> {
    let options = RangeOptions::first(WEBHOOK_DELIVERIES_MAX as usize).snapshot();
    let page = tx.range(webhook.key(tags::WEBHOOK_LOG).children(), options).await?;
    let read = |row: millrace_storage::KeyValue| serde_json::from_slice(&row.value).map_err(|_| CORRUPT);
    let mut all: Vec<DeliveryRecord> = page.items.into_iter().map(read).collect::<LayerResult<_>>()?;
    all.sort_unstable_by_key(|delivery| std::cmp::Reverse(delivery.number));
    Ok(all)
}

pub(super) fn clear(tx: &Transaction, webhook: WebhookId<'_>) -> LayerResult<()> {
    Ok(tx.clear_range(webhook.key(tags::WEBHOOK_LOG).children())?)
}

fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(WEBHOOK_DELIVERY_TEXT_BYTES_MAX)].to_owned()
}

const CORRUPT: LayerError = LayerError::Corrupt("delivery of a webhook");
