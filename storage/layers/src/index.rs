//! Topic to streams. A pod has all filters of a broker in memory. In the transaction that appends, it reads what has [`changes`]d since
//! it last did, and [`watch`]es the topic: so the transaction conflicts with a filter for that topic that gains its first or loses its
//! last subscriber, and with nothing else. With one that comes first, it is run again and finds the new stream; one that comes later was
//! not acknowledged before the publish. For an exact filter its own row is watched; for wildcards a version key of all that begin with
//! the same level.

mod changes;

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction, after};

use crate::{
    BrokerId,
    error::Result,
    limits::NAME_BYTES_MAX,
    name::{Bucket, Filter},
    rows,
    streams::StreamId,
    tags,
    tuple::{Elements, Key},
};

pub use changes::{changes, trim_changes};

/// A stream of a filter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Indexed {
    /// The group whose stream it is; empty for the one of all who do not share.
    pub group: Bytes,
    /// The stream.
    pub stream: StreamId,
}

/// A filter and its streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The filter, without a group.
    pub filter: Bytes,
    /// Its streams. In the index there is one at least.
    pub streams: Vec<Indexed>,
}

/// The two parts of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Filters without wildcards.
    Exact,
    /// The others.
    Wildcard,
}

/// Makes this transaction conflict with filters for `topic` that come or go before it commits, and after what it has read: to be
/// called after [`changes`].
///
/// # Errors
/// The store's.
pub fn watch(tx: &Transaction, broker: BrokerId, topic: &[u8]) -> Result<()> {
    for bucket in Bucket::of_topic(topic) {
        conflict(tx, &version_key(broker, bucket))?;
    }
    // No filter is longer.
    if topic.len() <= NAME_BYTES_MAX {
        conflict(tx, &Key::new(broker, tags::EXACT).bytes(topic))?;
    }
    Ok(())
}

/// As [`watch`], for all topics of a broker: with any filter that comes or goes.
///
/// # Errors
/// The store's.
pub fn watch_all(tx: &Transaction, broker: BrokerId) -> Result<()> {
    conflict(tx, &changes::count_key(broker))
}

fn conflict(tx: &Transaction, key: &Key) -> Result<()> {
    let key = key.as_ref();
    Ok(tx.add_read_conflict_range(KeyRange::new(key, after(key)))?)
}

/// Filters of a part of the index, at most `limit`, from after the filter `from`; the order is the store's. A snapshot read.
///
/// # Errors
/// The store's.
pub async fn list(
    tx: &Transaction,
    broker: BrokerId,
    part: Part,
    from: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<Row>> {
    let (prefix, is_wildcard) = match part {
        Part::Exact => (Key::new(broker, tags::EXACT), false),
        Part::Wildcard => (Key::new(broker, tags::WILDCARD), true),
    };
    let begin = from.map_or(prefix.children().begin, |from| after(row_key(broker, from).as_ref()));
    let options = RangeOptions::first(limit).snapshot();
    let page = tx.range(KeyRange::new(begin, prefix.end()), options).await?;
    let read = |row: millrace_storage::KeyValue| {
        let mut elements = Elements::after(&prefix, &row.key)?;
        if is_wildcard {
            elements.uint()?;
        }
        Ok(Row { filter: elements.bytes()?.into(), streams: decode(row.value)? })
    };
    page.items.into_iter().map(read).collect()
}

/// The streams of a filter, wildcards or not, as this transaction sees them. A snapshot read: for who has just changed them.
///
/// # Errors
/// The store's.
pub async fn streams(tx: &Transaction, broker: BrokerId, filter: &[u8]) -> Result<Vec<Indexed>> {
    streams_of(tx, broker, filter, Read::Snapshot).await
}

pub(crate) async fn streams_of(
    tx: &Transaction,
    broker: BrokerId,
    filter: &[u8],
    read: Read,
) -> Result<Vec<Indexed>> {
    tx.get(row_key(broker, filter), read).await?.map_or(Ok(Vec::new()), decode)
}

/// Writes the streams of a filter after one came or went, and tells those who have the index in memory.
pub(crate) fn change(tx: &Transaction, broker: BrokerId, filter: &[u8], streams: &[Indexed]) -> Result<()> {
    let key = row_key(broker, filter);
    if streams.is_empty() {
        tx.clear(key)?;
    } else {
        tx.set(key, encode(streams))?;
    }
    if (Filter { group: b"", filter }).is_wildcard() {
        tx.atomic_add(version_key(broker, Bucket::of_filter(filter)), 1)?;
    }
    changes::note(tx, broker, filter, streams)
}

fn row_key(broker: BrokerId, filter: &[u8]) -> Key {
    if (Filter { group: b"", filter }).is_wildcard() {
        Key::new(broker, tags::WILDCARD).uint(Bucket::of_filter(filter).number()).bytes(filter)
    } else {
        Key::new(broker, tags::EXACT).bytes(filter)
    }
}

fn version_key(broker: BrokerId, bucket: Bucket) -> Key {
    Key::new(broker, tags::BUCKET).uint(bucket.number())
}

fn encode(streams: &[Indexed]) -> Bytes {
    let mut value = Vec::with_capacity(streams.len() * 24);
    for Indexed { group, stream } in streams {
        value.put_u64(*stream);
        rows::put_sized(&mut value, group);
    }
    value.into()
}

fn decode(mut value: Bytes) -> Result<Vec<Indexed>> {
    let mut streams = Vec::with_capacity(1);
    while value.has_remaining() {
        let stream = value.try_get_u64()?;
        streams.push(Indexed { stream, group: rows::take_sized(&mut value)? });
    }
    Ok(streams)
}
