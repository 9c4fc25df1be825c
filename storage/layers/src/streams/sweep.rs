//! Removes streams, entries and bodies that nothing refers to any more, a bounded number in each transaction.

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction, after};

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
    tx.clear(keys::group(broker, stream))?;
    super::claims::clear(tx, broker, stream)?;
    tx.set(keys::dropped(broker).uint(stream), Bytes::copy_from_slice(&[partitions]))?;
    Ok(())
}

/// Removes up to `limit` entries of a dropped stream, and returns their number; 0 when no dropped stream is left.
pub async fn sweep_dropped(tx: &Transaction, broker: BrokerId, limit: usize) -> LayerResult<usize> {
    let prefix = keys::dropped(broker);
    let first = tx.range(prefix.children(), RangeOptions::first(1)).await?.items.pop();
    let Some(dropped) = first else { return Ok(0) };
    let stream = Elements::after(&prefix, &dropped.key)?.uint()?;
    let mut removed = 0;
    for partition in 0..dropped.value.first().copied().unwrap_or(1) {
        let range = keys::partition(broker, stream, partition).children();
        let page = tx.range(range.clone(), RangeOptions::first((limit - removed).max(1)).snapshot()).await?;
        removed += page.items.len();
        let Some(last) = page.items.last() else { continue };
        tx.clear_range(KeyRange::new(range.begin, after(&last.key)))?;
        if page.more || removed >= limit {
            return Ok(removed);
        }
    }
    totals::clear(tx, broker, stream).await?;
    tx.clear(&dropped.key)?;
    // The stream counts too, because 0 means that nothing was left to do.
    Ok(removed + 1)
}
