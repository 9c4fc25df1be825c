//! Subscriptions of sessions, and the filters that have subscribers.
//!
//! A filter has a stream from its first subscriber to its last. Only these two change the index; all others add to a
//! counter, which conflicts with no other transaction. So a million sessions may subscribe to one filter, or leave it,
//! at the same time without disturbing each other or publishers (see `members.rs`).

pub(crate) mod members;
mod rows;
mod sweep;

#[cfg(test)]
mod tests;

pub use members::{is_sole, subscribers};
pub use rows::{StoredSubscription, find, list};
pub use sweep::{SweptFilters, sweep};

use millrace_storage::{Read, StoreVersion, Transaction};

use crate::{
    SessionId,
    error::LayerResult,
    name::{self, GroupedFilter},
    session_record::Owned,
    streams::StreamId,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredOptions {
    /// The options byte of MQTT 5, of which only the QoS matters here: with QoS 0 no messages are stored. MQTT reserves bit
    /// 7, which is [`REPLAY_DUE`] here.
    pub bits: u8,
    pub identifier: u32,
}

/// Set with the SUBSCRIBE until the client has acknowledged the retained messages of its filter: a session that comes back
/// gets them again.
pub const REPLAY_DUE: u8 = 0x80;

/// Stands for the stream of a subscription with QoS 0, which stores no messages.
pub const NO_STREAM: StreamId = 0;

impl Default for StoredOptions {
    fn default() -> Self {
        Self { bits: 1, identifier: 0 }
    }
}

impl StoredOptions {
    fn keeps(self) -> bool {
        self.bits & 3 > 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribed {
    /// The stream of its messages; [`NO_STREAM`] without stored messages.
    pub stream: StreamId,
    /// The stream is complete from this version on: the retained messages at this version, and then the stream's
    /// entries, are all messages.
    pub since: StoreVersion,
    /// The session had this subscription before. If it has a stream already, it misses nothing.
    pub existed: bool,
    /// The stream is new, because nobody else subscribes to its filter.
    pub is_first: bool,
}

/// Subscribes a session to a filter (`$share/group/filter` too), or renews the options. A QoS 0 subscription gets no
/// stream, but a subscription that has a stream keeps it with the entries there, whatever the new options are.
///
/// # Errors
/// [`crate::LayerError::NameTooLong`], [`crate::LayerError::TooManyGroups`], or the store's.
pub async fn subscribe(owned: &Owned<'_>, filter: &[u8], options: StoredOptions) -> LayerResult<Subscribed> {
    name::check(filter)?;
    let tx = owned.tx;
    let old = rows::get(owned.tx, owned.id(), filter).await?;
    let existed = old.is_some();
    if let Some(mut old) = old.filter(|old| old.stream != NO_STREAM || !options.keeps()) {
        old.options = StoredOptions { bits: options.bits | old.options.bits & REPLAY_DUE, ..options };
        rows::set(tx, owned.id(), filter, &old)?;
        return Ok(Subscribed { stream: old.stream, since: old.since, existed, is_first: false });
    }
    let since = tx.read_version().await?;
    let (stream, is_first) = if options.keeps() {
        members::join(tx, owned.id().broker, GroupedFilter::parse(filter), since).await?
    } else {
        (NO_STREAM, false)
    };
    rows::set(tx, owned.id(), filter, &rows::StoredSubscriptionRow { options, since, stream })?;
    Ok(Subscribed { stream, since, existed, is_first })
}

/// The client has acknowledged the retained messages of a filter, see [`REPLAY_DUE`].
pub async fn replayed(owned: &Owned<'_>, filter: &[u8]) -> LayerResult<()> {
    let Some(mut row) = rows::get(owned.tx, owned.id(), filter).await? else { return Ok(()) };
    if row.options.bits & REPLAY_DUE != 0 {
        row.options.bits &= !REPLAY_DUE;
        rows::set(owned.tx, owned.id(), filter, &row)?;
    }
    Ok(())
}

pub async fn unsubscribe(owned: &Owned<'_>, filter: &[u8]) -> LayerResult<bool> {
    let (tx, id) = (owned.tx, owned.id());
    let Some(row) = rows::get(tx, id, filter).await? else { return Ok(false) };
    rows::clear(tx, id, filter)?;
    if row.stream != NO_STREAM {
        members::leave(tx, id.broker, GroupedFilter::parse(filter), row.stream).await?;
    }
    Ok(true)
}

/// Read serializably, for a new owner while the old one may be changing them.
pub(crate) async fn read(tx: &Transaction, id: SessionId<'_>) -> LayerResult<Vec<StoredSubscription>> {
    rows::read(tx, id, Read::Serializable).await
}

pub(crate) async fn clear(tx: &Transaction, id: SessionId<'_>) -> LayerResult<Vec<StoredSubscription>> {
    let subscriptions = rows::read(tx, id, Read::Serializable).await?;
    if subscriptions.is_empty() {
        return Ok(subscriptions);
    }
    tx.clear_range(rows::prefix(id).children())?;
    for subscription in subscriptions.iter().filter(|subscription| subscription.stream != NO_STREAM) {
        members::leave(tx, id.broker, GroupedFilter::parse(&subscription.filter), subscription.stream)
            .await?;
    }
    Ok(subscriptions)
}
