//! Removes streams, entries and bodies that nothing refers to any more, a bounded number in each transaction.

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction, TransactionOption, after};

use super::{StreamId, append::decode_holders, keys, totals};
use crate::{BrokerId, error::LayerResult, position::Position, tuple::Elements};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub removed: usize,
    /// The next step begins after it; `None` at the end.
    pub next: Option<Position>,
}

/// Removes shared bodies of which no stream has an entry any more. Reads `limit` bodies after `from`.
///
/// A body lists the streams that it was appended to, so nothing counts references and a trim only clears a range of
/// entries. The cost is this walk with point reads for each body in use; it may be slow.
pub async fn sweep_bodies(
    tx: &Transaction,
    broker: BrokerId,
    from: Position,
    limit: usize,
) -> LayerResult<Swept> {
    tx.set_option(TransactionOption::Cleanup);
    let prefix = keys::holders(broker);
    let begin = after(keys::holders(broker).position(from).as_ref());
    let range = KeyRange::new(begin, prefix.end());
    let page = tx.range(range, RangeOptions::first(limit).snapshot()).await?;
    let mut swept = Swept::default();
    for row in page.items {
        let position = Elements::after(&prefix, &row.key)?.position()?;
        if !is_held(tx, broker, position, row.value).await? {
            tx.clear(&row.key)?;
            tx.clear_range(keys::body(broker, position).children())?;
            swept.removed += 1;
        }
        swept.next = page.more.then_some(position);
    }
    Ok(swept)
}

async fn is_held(
    tx: &Transaction,
    broker: BrokerId,
    position: Position,
    holders: Bytes,
) -> LayerResult<bool> {
    for holder in decode_holders(holders)? {
        // A snapshot suffices: no entry with this versionstamp is added later.
        if tx.get(keys::entry(broker, holder, position), Read::Snapshot).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Takes a stream out of use; [`sweep_dropped`] removes its entries, which may be too many for one transaction, and its
/// totals, which appends may still change until this has committed.
pub(crate) fn drop_stream(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    partitions: u8,
) -> LayerResult<()> {
    tx.clear(keys::stream(broker, stream))?;
    tx.clear(keys::losses(broker, stream))?;
    tx.clear(keys::group(broker, stream))?;
    super::claims::clear(tx, broker, stream)?;
    tx.set(keys::dropped(broker).uint(stream), Bytes::copy_from_slice(&[partitions]))?;
    Ok(())
}

/// Where a sweep of dropped streams goes on. The embedded engine keeps removed rows until a compaction, and a step from
/// the start would pass all that were removed before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DroppedFrom {
    stream: StreamId,
    partition: u8,
    /// The first entry to look at; empty for all of the partition.
    entry: Bytes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweptDropped {
    /// Rows: entries and streams.
    pub removed: usize,
    pub next: Option<DroppedFrom>,
}

/// Removes dropped streams from `from` on with their entries, about `limit` rows.
pub async fn sweep_dropped(
    tx: &Transaction,
    broker: BrokerId,
    from: &DroppedFrom,
    limit: usize,
) -> LayerResult<SweptDropped> {
    tx.set_option(TransactionOption::Cleanup);
    let prefix = keys::dropped(broker);
    let range = KeyRange::new(keys::dropped(broker).uint(from.stream), prefix.end());
    let page = tx.range(range, RangeOptions::first(limit).snapshot()).await?;
    let mut swept = SweptDropped::default();
    for row in page.items {
        let stream = Elements::after(&prefix, &row.key)?.uint()?;
        let next = |stream| DroppedFrom { stream, ..DroppedFrom::default() };
        if swept.removed >= limit {
            return Ok(SweptDropped { next: Some(next(stream)), ..swept });
        }
        swept.next = page.more.then(|| next(stream + 1));
        // Another sweep may have removed the stream, and a filter may have taken its id since.
        let Some(partitions) = tx.get(&row.key, Read::Serializable).await? else { continue };
        let begin = if stream == from.stream { from.clone() } else { next(stream) };
        let partitions = partitions.first().copied().unwrap_or(1);
        let (removed, rest) = sweep_entries(tx, broker, begin, partitions, limit - swept.removed).await?;
        swept.removed += removed;
        if rest.is_some() {
            return Ok(SweptDropped { next: rest, ..swept });
        }
        totals::clear(tx, broker, stream).await?;
        tx.clear(&row.key)?;
        swept.removed += 1;
    }
    Ok(swept)
}

/// Removes up to `limit` entries of a dropped stream; returns their number, and where the rest begins.
async fn sweep_entries(
    tx: &Transaction,
    broker: BrokerId,
    from: DroppedFrom,
    partitions: u8,
    limit: usize,
) -> LayerResult<(usize, Option<DroppedFrom>)> {
    let mut removed = 0;
    for partition in from.partition..partitions {
        let mut range = keys::partition(broker, from.stream, partition).children();
        if partition == from.partition && !from.entry.is_empty() {
            range.begin = from.entry.clone();
        }
        let options = RangeOptions::first((limit - removed).max(1)).snapshot();
        let page = tx.range(range.clone(), options).await?;
        removed += page.items.len();
        let Some(last) = page.items.last() else { continue };
        let entry = after(&last.key);
        tx.clear_range(KeyRange::new(range.begin, &entry))?;
        if page.more || removed >= limit {
            return Ok((removed, Some(DroppedFrom { partition, entry, ..from })));
        }
    }
    Ok((removed, None))
}
