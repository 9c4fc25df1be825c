//! Topic to streams. Exact filters are read by key; wildcard filters are loaded, so that a pod can match topics with a trie of its
//! own, and a version key for each bucket tells whether that trie still has all of them.
//!
//! A publish reads, in the transaction that appends, [`exact`] for its topic and [`validate`] for the topic's buckets. Both are
//! serializable, so it conflicts with a filter of its own that gains its first or loses its last subscriber, and with nothing
//! else: with one that comes first, it is run again and finds the new stream; one that comes later was not acknowledged
//! before the publish. Exact filters change no version key: the publish reads the very row that would change.

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

/// A stream of a filter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Indexed {
    /// The group whose stream it is; empty for the one of all who do not share.
    pub group: Bytes,
    /// The stream.
    pub stream: StreamId,
}

/// A wildcard filter and its streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wildcard {
    /// The filter, without a group.
    pub filter: Bytes,
    /// Its streams: one at least.
    pub streams: Vec<Indexed>,
}

/// Wildcard filters of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The version of the bucket. Pages with the same one go together.
    pub version: u64,
    /// Filters in order.
    pub filters: Vec<Wildcard>,
    /// Whether there are more, after the last one.
    pub more: bool,
}

/// The streams of the exact filter that is `topic`. Serializable.
///
/// # Errors
/// The store's.
pub async fn exact(tx: &Transaction, broker: BrokerId, topic: &[u8]) -> Result<Vec<Indexed>> {
    // No filter is that long.
    if topic.len() > NAME_BYTES_MAX {
        return Ok(Vec::new());
    }
    streams_of(tx, broker, topic, Read::Serializable).await
}

/// A page of the wildcard filters of a bucket, from after the filter `from`. Snapshot reads: what it found is as old as the version
/// that it tells, and [`validate`] says whether that is too old.
///
/// # Errors
/// The store's.
pub async fn load_page(
    tx: &Transaction,
    broker: BrokerId,
    bucket: Bucket,
    from: Option<&[u8]>,
    limit: usize,
) -> Result<Loaded> {
    let prefix = wildcards(broker, bucket);
    let mut range = prefix.children();
    if let Some(from) = from {
        range.begin = after(prefix.clone().bytes(from).as_ref());
    }
    let version = rows::counter(tx, &version_key(broker, bucket), Read::Snapshot).await?;
    let page = tx.range(range, RangeOptions::first(limit).snapshot()).await?;
    let mut filters = Vec::with_capacity(page.items.len());
    for row in page.items {
        let filter = Elements::after(&prefix, &row.key)?.bytes()?.into();
        filters.push(Wildcard { filter, streams: decode(row.value)? });
    }
    Ok(Loaded { version, filters, more: page.more })
}

/// All wildcard filters of some buckets, with the buckets' versions in the same order. What is more than a transaction can read is
/// loaded with [`load_page`].
///
/// # Errors
/// The store's.
pub async fn load(
    tx: &Transaction,
    broker: BrokerId,
    buckets: &[Bucket],
) -> Result<(Vec<Wildcard>, Vec<u64>)> {
    let (mut filters, mut versions) = (Vec::new(), Vec::new());
    for bucket in buckets {
        let mut from: Option<Bytes> = None;
        loop {
            let page = load_page(tx, broker, *bucket, from.as_deref(), 1_000).await?;
            from = page.filters.last().map(|last| last.filter.clone());
            filters.extend(page.filters);
            if !page.more {
                versions.push(page.version);
                break;
            }
        }
    }
    Ok((filters, versions))
}

/// The versions of some buckets, in the same order. Serializable: a wildcard filter in one of them that comes or goes before this
/// transaction commits makes it conflict.
///
/// # Errors
/// The store's.
pub async fn validate(tx: &Transaction, broker: BrokerId, buckets: &[Bucket]) -> Result<Vec<u64>> {
    let read = |bucket: &Bucket| tx.get(version_key(broker, *bucket), Read::Serializable);
    let replies: Vec<_> = buckets.iter().map(read).collect();
    let mut versions = Vec::with_capacity(buckets.len());
    for reply in replies {
        versions.push(match reply.await? {
            Some(mut value) => value.try_get_u64_le()?,
            None => 0,
        });
    }
    Ok(versions)
}

/// The streams of a filter, wildcards or not, as this transaction sees them. A snapshot read: for who has just changed them.
///
/// # Errors
/// The store's.
pub async fn streams(tx: &Transaction, broker: BrokerId, filter: &[u8]) -> Result<Vec<Indexed>> {
    streams_of(tx, broker, filter, Read::Snapshot).await
}

/// All filters with streams, from after `from`, exact ones first: for inspection.
///
/// # Errors
/// The store's.
pub async fn list_exact(
    tx: &Transaction,
    broker: BrokerId,
    from: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<Wildcard>> {
    let prefix = Key::new(broker, tags::EXACT);
    let begin = from.map_or(prefix.children().begin, |from| after(prefix.clone().bytes(from).as_ref()));
    let options = RangeOptions::first(limit).snapshot();
    let page = tx.range(KeyRange::new(begin, prefix.end()), options).await?;
    let read = |row: millrace_storage::KeyValue| {
        let filter = Elements::after(&prefix, &row.key)?.bytes()?.into();
        Ok(Wildcard { filter, streams: decode(row.value)? })
    };
    page.items.into_iter().map(read).collect()
}

pub(crate) async fn streams_of(
    tx: &Transaction,
    broker: BrokerId,
    filter: &[u8],
    read: Read,
) -> Result<Vec<Indexed>> {
    tx.get(row_key(broker, filter), read).await?.map_or(Ok(Vec::new()), decode)
}

/// Writes the streams of a filter after one came or went, and tells those who keep a trie.
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
    Ok(())
}

fn row_key(broker: BrokerId, filter: &[u8]) -> Key {
    if (Filter { group: b"", filter }).is_wildcard() {
        wildcards(broker, Bucket::of_filter(filter)).bytes(filter)
    } else {
        Key::new(broker, tags::EXACT).bytes(filter)
    }
}

fn wildcards(broker: BrokerId, bucket: Bucket) -> Key {
    Key::new(broker, tags::WILDCARD).uint(bucket.number())
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
