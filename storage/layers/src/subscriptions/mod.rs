//! What sessions subscribe to, and which filters have subscribers at all.
//!
//! A filter has a stream from its first subscriber to its last. Only these two change the index; all between only add to a
//! counter, which conflicts with nobody. So a million sessions may subscribe to one filter, or leave it, at the same time
//! without disturbing each other or those who publish. The reasoning is in `members.rs`.

pub(crate) mod members;
mod rows;
mod sweep;

#[cfg(test)]
mod tests;

pub use members::{is_sole, subscribers};
pub use rows::{Subscription, list};
pub use sweep::{SweptFilters, sweep};

use millrace_storage::{Read, Version};

use crate::{
    error::Result,
    name::{self, Filter},
    sessions::Owned,
    streams::StreamId,
};

/// What a subscription asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The options byte of MQTT 5. Only its QoS is looked at here: with 0 nothing is kept.
    pub bits: u8,
    /// The subscription identifier; 0 for none.
    pub identifier: u32,
}

/// The stream of a subscription with QoS 0: nothing is kept for it.
pub const NO_STREAM: StreamId = 0;

impl Default for Options {
    /// QoS 1, and nothing else.
    fn default() -> Self {
        Self { bits: 1, identifier: 0 }
    }
}

impl Options {
    fn keeps(self) -> bool {
        self.bits & 3 > 0
    }
}

/// A subscription that was made or renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribed {
    /// The stream that has its messages; [`NO_STREAM`] when nothing is kept for it.
    pub stream: StreamId,
    /// The version from which on it has them. All that is retained at that version, and then all that the stream has after it, is
    /// all.
    pub since: Version,
    /// Whether the session had it before. Then it keeps its stream and misses nothing.
    pub existed: bool,
    /// Whether the filter had no subscriber before.
    pub is_first: bool,
}

/// Subscribes a session to a filter (`$share/group/filter` too), or renews the options. One that asks for QoS 0 gets no stream; one
/// that has a stream keeps it, whatever it asks for later, for what it has in it.
///
/// # Errors
/// [`crate::Error::NameTooLong`], [`crate::Error::TooManyGroups`], or the store's.
pub async fn subscribe(owned: &Owned<'_>, filter: &[u8], options: Options) -> Result<Subscribed> {
    name::check(filter)?;
    let tx = owned.tx;
    let old = rows::get(owned.tx, owned.id(), filter).await?;
    let existed = old.is_some();
    if let Some(mut old) = old.filter(|old| old.stream != NO_STREAM || !options.keeps()) {
        old.options = options;
        rows::set(tx, owned.id(), filter, &old)?;
        return Ok(Subscribed { stream: old.stream, since: old.since, existed, is_first: false });
    }
    let since = tx.read_version().await?;
    let (stream, is_first) = if options.keeps() {
        members::join(tx, owned.id().broker, Filter::parse(filter), since).await?
    } else {
        (NO_STREAM, false)
    };
    rows::set(tx, owned.id(), filter, &rows::Row { options, since, stream })?;
    Ok(Subscribed { stream, since, existed, is_first })
}

/// Ends a subscription. Returns whether there was one.
///
/// # Errors
/// The store's.
pub async fn unsubscribe(owned: &Owned<'_>, filter: &[u8]) -> Result<bool> {
    let (tx, id) = (owned.tx, owned.id());
    let Some(row) = rows::get(tx, id, filter).await? else { return Ok(false) };
    rows::clear(tx, id, filter)?;
    if row.stream != NO_STREAM {
        members::leave(tx, id.broker, Filter::parse(filter), row.stream).await?;
    }
    Ok(true)
}

/// All subscriptions of a session, serializably: for who takes it from an owner that may be changing them.
pub(crate) async fn read(
    tx: &millrace_storage::Transaction,
    id: crate::sessions::SessionId<'_>,
) -> Result<Vec<Subscription>> {
    rows::read(tx, id, Read::Serializable).await
}

/// Ends all subscriptions of a session.
pub(crate) async fn clear(
    tx: &millrace_storage::Transaction,
    id: crate::sessions::SessionId<'_>,
) -> Result<()> {
    let subscriptions = rows::read(tx, id, Read::Serializable).await?;
    if subscriptions.is_empty() {
        return Ok(());
    }
    tx.clear_range(rows::prefix(id).children())?;
    for subscription in subscriptions.into_iter().filter(|subscription| subscription.stream != NO_STREAM) {
        members::leave(tx, id.broker, Filter::parse(&subscription.filter), subscription.stream).await?;
    }
    Ok(())
}
