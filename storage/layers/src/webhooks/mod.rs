//! Queues of webhooks. Each webhook has its own streams: it is a group (`$share/#name/filter`) that no client can
//! join, because a share name may not contain `#`. So its filters are in the filter index like any subscription, a
//! publish appends its events in its own transaction, and one cursor reads them in commit order.
//!
//! One pod at a time delivers a webhook, under a lease. An event that was refused for good, or for too long, becomes
//! a [`StoredDeadLetter`]: it leaves the queue, and its tenant can look at it and send it again.
//!
//! - [`sync`] makes the queues of a broker's webhook records; only the process that changes the filter index calls it,
//!   because the queues are in the index.
//! - [`enqueue`] queues a webhook whose streams have grown, in the transaction that appends; [`queued`] finds queued
//!   webhooks.

mod dead_letters;
mod deliver;
mod log;
mod state;
mod sync;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Transaction, after};

use crate::{
    BrokerId,
    error::LayerResult,
    tags,
    tuple::{Elements, Key},
};

pub use dead_letters::{
    NewDeadLetter, StoredDeadLetter, add_test, dead_letters, forget_dead_letters, remove, send_again,
};
pub use deliver::{DeliveryOutcome, DeliveryWork, TakenDelivery, WaitingEvents, settle, status, take};
pub use log::{DeliveryRecord, deliveries};
pub use state::{DeliveryFailure, WebhookState};
pub use sync::{Synced, WantedQueues, forget, has_any, sync};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookId<'a> {
    pub broker: BrokerId,
    pub name: &'a str,
}

impl WebhookId<'_> {
    fn key(self, tag: &[u8]) -> Key {
        Key::new(self.broker, tag).bytes(self.name.as_bytes())
    }

    fn group(self) -> String {
        format!("#{}", self.name.replace('%', "%25").replace('/', "%2F"))
    }
}

/// `None` for a group of clients.
#[must_use]
pub fn name_of_group(group: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(group.strip_prefix(b"#")?).ok()?;
    Some(name.replace("%2F", "/").replace("%25", "%"))
}

/// Queues a webhook that may have events to deliver; conflicts only with a concurrent `dequeue`.
pub fn enqueue(tx: &Transaction, webhook: WebhookId<'_>) -> LayerResult<()> {
    Ok(tx.set(queued_key(webhook), Bytes::new())?)
}

/// Lists up to `limit` queued webhooks after `from`, as a snapshot read.
pub async fn queued(
    tx: &Transaction,
    from: Option<WebhookId<'_>>,
    limit: usize,
) -> LayerResult<Vec<(BrokerId, String)>> {
    let prefix = Key::new(tags::REGION, tags::WEBHOOK_QUEUED);
    let begin = from.map_or(prefix.children().begin, |from| after(queued_key(from).as_ref()));
    let page = tx.range(KeyRange::new(begin, prefix.end()), RangeOptions::first(limit).snapshot()).await?;
    let read = |row: millrace_storage::KeyValue| {
        let mut key = Elements::after(&prefix, &row.key)?;
        Ok((key.uint()?, String::from_utf8_lossy(&key.bytes()?).into_owned()))
    };
    page.items.into_iter().map(read).collect()
}

/// Removes a webhook from [`queued`]; conflicts with a concurrent [`enqueue`].
fn dequeue(tx: &Transaction, webhook: WebhookId<'_>) -> LayerResult<()> {
    let key = queued_key(webhook);
    tx.add_read_conflict_range(KeyRange::key(&key))?;
    Ok(tx.clear(key)?)
}

/// As `dequeue`, for a webhook that is off or deleted: an event that is queued meanwhile need not be delivered.
pub fn remove_queued(tx: &Transaction, webhook: WebhookId<'_>) -> LayerResult<()> {
    Ok(tx.clear(queued_key(webhook))?)
}

fn queued_key(webhook: WebhookId<'_>) -> Key {
    Key::new(tags::REGION, tags::WEBHOOK_QUEUED).uint(webhook.broker).bytes(webhook.name.as_bytes())
}
