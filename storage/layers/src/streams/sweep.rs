//! Removing what nobody refers to any more, a bounded piece at a time.

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction, after};

use super::{StreamId, append::decode_holders, keys, totals};
use crate::{BrokerId, error::Result, position::Position, tuple::Elements};

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Things that it removed.
    pub removed: usize,
    /// Where the next sweep begins; `None` when this one came to the end.
    pub next: Option<Position>,
}

/// Removes bodies that were stored once for several streams, and that no stream has an entry of any more; looks at `limit` of
/// them from after `from` on.
///
/// A body names the streams that it was appended to, so nothing is counted: a trim clears its range and knows nothing of
/// bodies, and a body lives as long as the last of its entries. The price is this walk, some point reads for each body that
/// is still held; nothing hurries it.
///
/// # Errors
/// The store's.
pub async fn sweep_bodies(tx: &Transaction, broker: BrokerId, from: Position, limit: usize) -> Result<Swept> {
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

async fn is_held(tx: &Transaction, broker: BrokerId, position: Position, holders: Bytes) -> Result<bool> {
    for holder in decode_holders(holders)? {
        // A snapshot: entries go, but none with this versionstamp ever comes.
        if tx.get(keys::entry(broker, holder, position), Read::Snapshot).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Takes a stream out of use. Its entries go with [`sweep_dropped`], since there may be more than one transaction clears; so do its
/// totals, for only after this nobody adds to them.
pub(crate) fn drop_stream(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    partitions: u8,
) -> Result<()> {
    tx.clear(keys::stream(broker, stream))?;
    tx.clear(keys::group(broker, stream))?;
    super::claims::clear(tx, broker, stream)?;
    tx.set(keys::dropped(broker).uint(stream), Bytes::copy_from_slice(&[partitions]))?;
    Ok(())
}

/// Removes up to `limit` entries of a stream whose last subscriber has left. Returns how many; 0 when there is none left.
///
/// # Errors
/// The store's.
pub async fn sweep_dropped(tx: &Transaction, broker: BrokerId, limit: usize) -> Result<usize> {
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
    // The stream itself is one thing that was removed: 0 says that there was nothing to do.
    Ok(removed + 1)
}
