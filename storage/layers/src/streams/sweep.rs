//! Removes streams, entries and bodies that nothing refers to any more, a bounded number in each transaction.

use bytes::Bytes;
use millrace_storage::{
    KeyRange, KeyValue, RangeOptions, RangePage, Read, Reply, Transaction, TransactionOption, after,
};

use super::{
    StreamId, StreamRef,
    append::decode_holders,
    keys,
    totals::{self, Totals},
};
use crate::{BrokerId, error::LayerResult, position::Position, tuple::Elements};

/// Reads that are asked for together, because a store across a network takes a round trip for each.
const TOGETHER: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub removed: usize,
    /// The next step begins after it; `None` at the end.
    pub next: Option<Position>,
}

/// Removes shared bodies of which no stream has an entry any more. Reads up to `limit` bodies after `from`, and ends early
/// after about ten reads for each of them.
///
/// A body lists the streams that it was appended to, so nothing counts references and a trim only clears a range of
/// entries. In return, this walk reads several keys for each body in use.
pub async fn sweep_bodies(
    tx: &Transaction,
    broker: BrokerId,
    from: Position,
    limit: usize,
) -> LayerResult<Swept> {
    tx.set_option(TransactionOption::FreesSpace);
    let prefix = keys::holders(broker);
    let begin = after(keys::holders(broker).position(from).as_ref());
    let range = KeyRange::new(begin, prefix.end());
    let page = tx.range(range, RangeOptions::first(limit).snapshot()).await?;
    let (mut swept, mut reads, count) = (Swept::default(), 0, page.items.len());
    for (number, row) in page.items.into_iter().enumerate() {
        let position = Elements::after(&prefix, &row.key)?.position()?;
        if !is_held(tx, broker, position, row.value, &mut reads).await? {
            tx.clear(&row.key)?;
            tx.clear_range(keys::body(broker, position).children())?;
            swept.removed += 1;
        }
        let more = page.more || number + 1 < count;
        swept.next = more.then_some(position);
        if reads >= limit.saturating_mul(READS_PER_BODY) {
            break;
        }
    }
    Ok(swept)
}

/// Mostly the first stream of a body still has its entry; a body of many streams that are all trimmed has more reads.
const READS_PER_BODY: usize = 10;

async fn is_held(
    tx: &Transaction,
    broker: BrokerId,
    position: Position,
    holders: Bytes,
    reads: &mut usize,
) -> LayerResult<bool> {
    for holders in decode_holders(holders)?.chunks(TOGETHER) {
        *reads += holders.len();
        // A snapshot suffices: no entry with this versionstamp is added later.
        let entry = |holder: &StreamRef| tx.get(keys::entry(broker, *holder, position), Read::Snapshot);
        let replies: Vec<_> = holders.iter().map(entry).collect();
        let mut is_held = false;
        for reply in replies {
            is_held |= reply.await?.is_some();
        }
        if is_held {
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

/// Where a sweep of dropped streams continues. The embedded engine keeps removed rows until a compaction, and a step from
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
    tx.set_option(TransactionOption::FreesSpace);
    let prefix = keys::dropped(broker);
    let range = KeyRange::new(keys::dropped(broker).uint(from.stream), prefix.end());
    let page = tx.range(range, RangeOptions::first(limit).snapshot()).await?;
    let mut swept = SweptDropped::default();
    let next = |stream| DroppedFrom { stream, ..DroppedFrom::default() };
    for rows in page.items.chunks(TOGETHER) {
        let mut dropped = Vec::with_capacity(rows.len());
        for row in rows {
            dropped.push(SweptStream::ask(tx, broker, Elements::after(&prefix, &row.key)?.uint()?, row));
        }
        for asked in dropped {
            let stream = asked.stream;
            if swept.removed >= limit {
                return Ok(SweptDropped { next: Some(next(stream)), ..swept });
            }
            swept.next = page.more.then(|| next(stream + 1));
            let Some(dropped) = asked.answer().await? else { continue };
            if dropped.has_entries {
                let begin = if stream == from.stream { from.clone() } else { next(stream) };
                let room = limit - swept.removed;
                let (removed, rest) = sweep_entries(tx, broker, begin, dropped.partitions, room).await?;
                swept.removed += removed;
                if rest.is_some() {
                    return Ok(SweptDropped { next: rest, ..swept });
                }
            }
            totals::clear(tx, broker, stream, dropped.totals)?;
            tx.clear(keys::dropped(broker).uint(stream))?;
            swept.removed += 1;
        }
    }
    Ok(swept)
}

struct SweptStream {
    partitions: u8,
    totals: Totals,
    has_entries: bool,
}

struct AskedDropped<'t> {
    stream: StreamId,
    partitions: u8,
    row: Reply<'t, Option<Bytes>>,
    totals: Reply<'t, Option<Bytes>>,
    entries: Vec<Reply<'t, RangePage>>,
}

impl SweptStream {
    fn ask<'t>(tx: &'t Transaction, broker: BrokerId, stream: StreamId, row: &KeyValue) -> AskedDropped<'t> {
        let partitions = row.value.first().copied().unwrap_or(1);
        let first = |partition| {
            let range = keys::partition(broker, stream, partition).children();
            tx.range(range, RangeOptions::first(1).snapshot())
        };
        AskedDropped {
            stream,
            partitions,
            row: tx.get(&row.key, Read::Serializable),
            totals: totals::ask(tx, broker, stream),
            entries: (0..partitions).map(first).collect(),
        }
    }
}

impl AskedDropped<'_> {
    /// `None`: another sweep has removed the stream, and a filter may have taken its id since.
    async fn answer(self) -> LayerResult<Option<SweptStream>> {
        let Self { partitions, row, totals, entries, .. } = self;
        let is_dropped = row.await?.is_some();
        let totals = totals::answer(totals.await?)?;
        let mut has_entries = false;
        for entry in entries {
            has_entries |= !entry.await?.items.is_empty();
        }
        Ok(is_dropped.then_some(SweptStream { partitions, totals, has_entries }))
    }
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
