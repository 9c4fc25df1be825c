//! Joining and leaving a filter.
//!
//! Three rows: the filter's in the index, which says that there is a stream and which; the stream's; and the number of
//! subscribers, a counter that is only ever added to. What each transaction reads serializably decides who conflicts:
//!
//! - **Who joins reads the index row, not the number.** The row changes only with the first and the last subscriber, so
//!   those who join do not conflict with each other, nor with those who leave. If the row is there, it adds one to the number.
//!   If the last one removes the row meanwhile, it conflicts, and runs again as the first.
//! - **Who leaves reads the number: as a snapshot first.** If it is large, others are left, whatever happens meanwhile, or nearly
//!   so: it subtracts one and conflicts with nobody. If it is small, it reads the number again serializably. Then it conflicts with
//!   everyone who joins or leaves before it commits, the number is exact, and the one that finds 1 removes the rows.
//! - **A publish reads the index row or the bucket's version**, which only the first and the last change.
//!
//! What can go wrong is on the safe side. More than [`EXACT_COUNT_MAX`] transactions that all read a large number at the same
//! version may all leave, and the last of them does not know that it was. Then a filter stays with a number of 0: publishes
//! go on being written for nobody until [`super::sweep`] finds it. The other way around, a row that goes while somebody subscribes,
//! cannot happen: only a serializable read of the number removes it.

use bytes::Bytes;
use millrace_storage::{Read, Transaction, Version};

use crate::{
    BrokerId,
    error::{Error, Result},
    index::{self, Indexed},
    limits::{EXACT_COUNT_MAX, GROUPS_PER_FILTER_MAX},
    name::{self, Filter},
    position::Position,
    rows,
    streams::{self, Stream, StreamId},
    tags,
    tuple::Key,
};

/// Ids of streams have 48 bits: two bytes less in every key.
const STREAM_ID_BITS: u32 = 48;

/// Counts a new subscriber. Returns the stream, and whether it is new.
pub(crate) async fn join(
    tx: &Transaction,
    broker: BrokerId,
    filter: Filter<'_>,
    since: Version,
) -> Result<(StreamId, bool)> {
    let mut streams = index::streams_of(tx, broker, filter.filter, Read::Serializable).await?;
    let existing = streams.iter().find(|indexed| indexed.group == filter.group);
    let (stream, is_first) = match existing {
        Some(indexed) => (indexed.stream, false),
        None if streams.len() >= GROUPS_PER_FILTER_MAX => return Err(Error::TooManyGroups),
        None => {
            let stream = create(tx, broker, filter, since).await?;
            streams.push(Indexed { group: Bytes::copy_from_slice(filter.group), stream });
            index::change(tx, broker, filter.filter, &streams)?;
            (stream, true)
        }
    };
    tx.atomic_add(count_key(broker, stream), 1)?;
    Ok((stream, is_first))
}

/// Makes a stream. Its id is drawn from the filter and the version that is read, so that creators need no common counter, and
/// the next life of a filter has another stream; the row that is read says whether it is free.
async fn create(tx: &Transaction, broker: BrokerId, filter: Filter<'_>, since: Version) -> Result<StreamId> {
    let name = filter.name();
    let mut id = name::hash(&[&name, &since.to_be_bytes()]);
    loop {
        id = id.wrapping_add(1) % (1 << STREAM_ID_BITS);
        let is_used = id == super::NO_STREAM
            || streams::stream(tx, broker, id, Read::Serializable).await?.is_some()
            || tx.get(streams::keys::dropped(broker).uint(id), Read::Serializable).await?.is_some();
        if !is_used {
            let row = Stream::new(name.into(), Position::end_of(since));
            tx.set(streams::keys::stream(broker, id), row.encode())?;
            return Ok(id);
        }
    }
}

/// Counts a subscriber less.
pub(crate) async fn leave(
    tx: &Transaction,
    broker: BrokerId,
    filter: Filter<'_>,
    stream: StreamId,
) -> Result<()> {
    let key = count_key(broker, stream);
    if rows::counter(tx, &key, Read::Snapshot).await? > EXACT_COUNT_MAX
        || rows::counter(tx, &key, Read::Serializable).await? > 1
    {
        return Ok(tx.atomic_add(key, -1)?);
    }
    remove(tx, broker, filter, stream).await
}

/// Removes a stream that nobody subscribes to: the caller has read its number serializably.
pub(super) async fn remove(
    tx: &Transaction,
    broker: BrokerId,
    filter: Filter<'_>,
    stream: StreamId,
) -> Result<()> {
    let row = streams::stream(tx, broker, stream, Read::Serializable).await?;
    let mut streams = index::streams_of(tx, broker, filter.filter, Read::Serializable).await?;
    streams.retain(|indexed| indexed.stream != stream);
    index::change(tx, broker, filter.filter, &streams)?;
    tx.clear(count_key(broker, stream))?;
    streams::drop_stream(tx, broker, stream, row.map_or(1, |row| row.partitions))
}

/// How many subscribers a stream has, about: a snapshot read.
///
/// # Errors
/// The store's.
pub async fn subscribers(tx: &Transaction, broker: BrokerId, stream: StreamId) -> Result<u64> {
    rows::counter(tx, &count_key(broker, stream), Read::Snapshot).await
}

/// Whether a stream has just one subscriber. When it says so, it still holds at the commit: the transaction conflicts with
/// one that joins. A stream with many is not read serializably, so their coming and going disturbs nobody.
///
/// # Errors
/// The store's.
pub async fn is_sole(tx: &Transaction, broker: BrokerId, stream: StreamId) -> Result<bool> {
    let key = count_key(broker, stream);
    Ok(rows::counter(tx, &key, Read::Snapshot).await? == 1
        && rows::counter(tx, &key, Read::Serializable).await? == 1)
}

pub(super) fn counts(broker: BrokerId) -> Key {
    Key::new(broker, tags::COUNT)
}

pub(super) fn count_key(broker: BrokerId, stream: StreamId) -> Key {
    counts(broker).uint(stream)
}
