//! Subscribers join and leave filters.
//!
//! A filter has three rows: the index row, which has the id of the stream; the stream's row; and the number of
//! subscribers, a counter that is only ever added to. The serializable reads of each transaction decide which
//! transactions conflict:
//!
//! - **Join reads the index row, not the number.** Only the first and the last subscriber change the row, so joins
//!   conflict neither with each other nor with leaves. If the last leave removes the row meanwhile, join conflicts, and
//!   runs again as the first.
//! - **Leave reads the number as a snapshot first.** If the number is large, other subscribers are left, with the
//!   exception below: leave subtracts one and conflicts with no other transaction. If the number is small, leave reads
//!   it again serializably, so that it conflicts with every join or leave that commits before it, and the leave that
//!   reads 1 removes the rows.
//! - **A publish watches the index row** ([`index::watch`]), which only the first and the last subscriber change.
//!
//! Errors are on the safe side: a row is never removed while a subscriber joins, because only a serializable read of
//! the number removes it. If more than [`EXACT_COUNT_MAX`] transactions read a large number at the same version and all
//! leave, none of them knows that it was the last. Then the number is 0, and publishes still go to a stream without
//! readers until [`super::sweep`] finds it.

use bytes::Bytes;
use millrace_storage::{Read, StoreVersion, Transaction};

use crate::{
    BrokerId,
    error::{LayerError, LayerResult},
    index::{self, IndexedStream},
    limits::{EXACT_COUNT_MAX, GROUPS_PER_FILTER_MAX},
    name::{self, GroupedFilter},
    position::Position,
    rows,
    streams::{self, Stream, StreamId},
    tags,
    tuple::Key,
};

/// Stream ids have 48 bits, which saves two bytes in every key.
const STREAM_ID_BITS: u32 = 48;

/// Counts a new subscriber, and returns the stream and whether it is new.
pub(crate) async fn join(
    tx: &Transaction,
    broker: BrokerId,
    filter: GroupedFilter<'_>,
    since: StoreVersion,
) -> LayerResult<(StreamId, bool)> {
    let mut streams = index::streams_of(tx, broker, filter.filter, Read::Serializable).await?;
    let existing = streams.iter().find(|indexed| indexed.group == filter.group);
    let (stream, is_first) = match existing {
        Some(indexed) => (indexed.stream, false),
        None if streams.len() >= GROUPS_PER_FILTER_MAX => return Err(LayerError::TooManyGroups),
        None => {
            let stream = create(tx, broker, filter, since).await?;
            streams.push(IndexedStream { group: Bytes::copy_from_slice(filter.group), stream });
            index::change(tx, broker, filter.filter, &streams)?;
            (stream, true)
        }
    };
    tx.atomic_add(count_key(broker, stream), 1)?;
    Ok((stream, is_first))
}

/// Derives the id from the filter and the read version, so that creators share no counter, and a recreated filter gets
/// a new stream.
async fn create(
    tx: &Transaction,
    broker: BrokerId,
    filter: GroupedFilter<'_>,
    since: StoreVersion,
) -> LayerResult<StreamId> {
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

pub(crate) async fn leave(
    tx: &Transaction,
    broker: BrokerId,
    filter: GroupedFilter<'_>,
    stream: StreamId,
) -> LayerResult<()> {
    let key = count_key(broker, stream);
    if rows::counter(tx, &key, Read::Snapshot).await? > EXACT_COUNT_MAX
        || rows::counter(tx, &key, Read::Serializable).await? > 1
    {
        return Ok(tx.atomic_add(key, -1)?);
    }
    remove(tx, broker, filter, stream).await
}

/// The caller must have read serializably that no subscriber remains. Only a damaged store has no row then.
pub(super) async fn remove(
    tx: &Transaction,
    broker: BrokerId,
    filter: GroupedFilter<'_>,
    stream: StreamId,
) -> LayerResult<()> {
    let row = streams::stream(tx, broker, stream, Read::Serializable).await?;
    let mut streams = index::streams_of(tx, broker, filter.filter, Read::Serializable).await?;
    streams.retain(|indexed| indexed.stream != stream);
    index::change(tx, broker, filter.filter, &streams)?;
    tx.clear(count_key(broker, stream))?;
    streams::drop_stream(tx, broker, stream, row.map_or(1, |row| row.partitions))
}

/// Approximate, because it is a snapshot read.
pub async fn subscribers(tx: &Transaction, broker: BrokerId, stream: StreamId) -> LayerResult<u64> {
    rows::counter(tx, &count_key(broker, stream), Read::Snapshot).await
}

/// Whether a stream has exactly one subscriber; a "yes" still holds at the commit, because the transaction conflicts
/// with a join. With many subscribers it reads no number serializably, so joins and leaves do not conflict with it.
pub async fn is_sole(tx: &Transaction, broker: BrokerId, stream: StreamId) -> LayerResult<bool> {
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
