//! What webhooks wait for. A webhook has streams of its own: it is a group (`$share/#name/filter`) that no client can be a member of,
//! for `#` may not stand in a share name. So what it is told stands in the filter index like any subscription, is appended by the
//! transaction that publishes, and is read in commit order with one cursor.
//!
//! One pod at a time delivers a webhook, under a lease. What was refused for good, or for too long, is a [`Letter`]: no longer in the
//! queue, kept for its tenant to look at and to send again.
//!
//! - [`sync`] makes the queues those of the records. It changes the filter index, so it is for who keeps that.
//! - [`note`] says that a queue has grown, in the transaction that appends; [`queued`] finds those that have.
//! - [`take`] begins a delivery and [`settle`] ends it.

mod deliver;
mod letters;
mod state;
mod sync;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Transaction, after};

use crate::{
    BrokerId,
    error::Result,
    tags,
    tuple::{Elements, Key},
};

pub use deliver::{Outcome, Taken, Waiting, Work, settle, status, take};
pub use letters::{Letter, NewLetter, add_test, letters, remove, send_again};
pub use state::{Failure, State};
pub use sync::{Synced, Wanted, concerns, forget, sync};

/// A webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook<'a> {
    /// Its broker.
    pub broker: BrokerId,
    /// Its name within the broker.
    pub name: &'a str,
}

impl Hook<'_> {
    fn key(self, tag: &[u8]) -> Key {
        Key::new(self.broker, tag).bytes(self.name.as_bytes())
    }

    /// The group that its streams belong to.
    fn group(self) -> String {
        format!("#{}", self.name.replace('%', "%25").replace('/', "%2F"))
    }
}

/// The webhook whose streams this group has; `None` for a group of clients.
#[must_use]
pub fn name_of_group(group: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(group.strip_prefix(b"#")?).ok()?;
    Some(name.replace("%2F", "/").replace("%25", "%"))
}

/// Says that a webhook may have something to be told. Conflicts with nobody but who finds its queue empty.
///
/// # Errors
/// The store's.
pub fn note(tx: &Transaction, hook: Hook<'_>) -> Result<()> {
    Ok(tx.set(queued_key(hook), Bytes::new())?)
}

/// Webhooks that may have something to be told, after `from`, at most `limit`. A snapshot read.
///
/// # Errors
/// The store's.
pub async fn queued(
    tx: &Transaction,
    from: Option<Hook<'_>>,
    limit: usize,
) -> Result<Vec<(BrokerId, String)>> {
    let prefix = Key::new(tags::REGION, tags::HOOK_QUEUED);
    let begin = from.map_or(prefix.children().begin, |from| after(queued_key(from).as_ref()));
    let page = tx.range(KeyRange::new(begin, prefix.end()), RangeOptions::first(limit).snapshot()).await?;
    let read = |row: millrace_storage::KeyValue| {
        let mut key = Elements::after(&prefix, &row.key)?;
        Ok((key.uint()?, String::from_utf8_lossy(&key.bytes()?).into_owned()))
    };
    page.items.into_iter().map(read).collect()
}

/// Takes a webhook off [`queued`], unless something is noted meanwhile.
fn rest(tx: &Transaction, hook: Hook<'_>) -> Result<()> {
    let key = queued_key(hook);
    tx.add_read_conflict_range(KeyRange::key(&key))?;
    Ok(tx.clear(key)?)
}

/// Takes a webhook that is gone off [`queued`].
///
/// # Errors
/// The store's.
pub fn drop_queued(tx: &Transaction, hook: Hook<'_>) -> Result<()> {
    Ok(tx.clear(queued_key(hook))?)
}

fn queued_key(hook: Hook<'_>) -> Key {
    Key::new(tags::REGION, tags::HOOK_QUEUED).uint(hook.broker).bytes(hook.name.as_bytes())
}
