//! Queues of webhooks. A webhook has streams of its own: it is a group (`$share/#name/filter`) that no client can
//! join, because a share name may not contain `#`. So its filters are in the filter index like any subscription, a
//! publish appends its events in its own transaction, and one cursor reads them in commit order.
//!
//! One pod at a time delivers a webhook, under a lease. An event that was refused for good, or for too long, becomes
//! a [`Letter`]: it leaves the queue, and its tenant can look at it and send it again.
//!
//! - [`sync`] makes the queues of a broker's webhook records; only the process that changes the filter index calls it,
//!   because the queues are in the index.
//! - [`note`] queues a webhook whose streams have grown, in the transaction that appends; [`queued`] finds queued
//!   webhooks.

mod deliver;
mod letters;
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

pub use deliver::{Outcome, Taken, WaitingEvents, Work, settle, status, take};
pub use letters::{Letter, NewLetter, add_test, letters, remove, send_again};
pub use log::{DeliveryRecord, deliveries};
pub use state::{Failure, State};
pub use sync::{Synced, Wanted, concerns, forget, sync};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook<'a> {
    pub broker: BrokerId,
    pub name: &'a str,
}

impl Hook<'_> {
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

/// Queues a webhook that may have events to deliver; conflicts only with a transaction that finds its queue empty.
pub fn note(tx: &Transaction, hook: Hook<'_>) -> LayerResult<()> {
    Ok(tx.set(queued_key(hook), Bytes::new())?)
}

/// Lists up to `limit` queued webhooks after `from`, as a snapshot read.
pub async fn queued(
    tx: &Transaction,
    from: Option<Hook<'_>>,
    limit: usize,
) -> LayerResult<Vec<(BrokerId, String)>> {
    let prefix = Key::new(tags::REGION, tags::HOOK_QUEUED);
    let begin = from.map_or(prefix.children().begin, |from| after(queued_key(from).as_ref()));
    let page = tx.range(KeyRange::new(begin, prefix.end()), RangeOptions::first(limit).snapshot()).await?;
    let read = |row: millrace_storage::KeyValue| {
        let mut key = Elements::after(&prefix, &row.key)?;
        Ok((key.uint()?, String::from_utf8_lossy(&key.bytes()?).into_owned()))
    };
    page.items.into_iter().map(read).collect()
}

/// Removes a webhook from [`queued`], unless a concurrent transaction notes it.
fn rest(tx: &Transaction, hook: Hook<'_>) -> LayerResult<()> {
    let key = queued_key(hook);
    tx.add_read_conflict_range(KeyRange::key(&key))?;
    Ok(tx.clear(key)?)
}

/// Removes a deleted webhook from [`queued`].
pub fn drop_queued(tx: &Transaction, hook: Hook<'_>) -> LayerResult<()> {
    Ok(tx.clear(queued_key(hook))?)
}

fn queued_key(hook: Hook<'_>) -> Key {
    Key::new(tags::REGION, tags::HOOK_QUEUED).uint(hook.broker).bytes(hook.name.as_bytes())
}
