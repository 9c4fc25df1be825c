//! Totals of streams, which every append adds to without a conflict.

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Read, Reply, Transaction, after};

use super::{StreamId, keys};
use crate::{
    BrokerId,
    error::LayerResult,
    metering::{self, Level},
    rows, tags,
    tuple::{Elements, Key},
};

/// Entries and the bytes of their bodies.
///
/// Both are in one counter, entries in the upper 28 bits and bytes in the lower 36, so that an append adds to one
/// key. A stream must be trimmed before it has 64 GiB or 268 million entries; beyond that the totals are wrong, and
/// the stream stays right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub entries: u64,
    /// A body that several streams share counts in each.
    pub bytes: u64,
}

const BYTES_BITS: u32 = 36;

impl Totals {
    pub fn add(&mut self, bytes: usize) {
        self.entries += 1;
        self.bytes += bytes as u64;
    }

    /// The sum of packed numbers is the packed sum, and so is a difference.
    fn packed(self) -> i64 {
        (self.entries << BYTES_BITS).wrapping_add(self.bytes).cast_signed()
    }

    fn unpacked(packed: u64) -> Self {
        Self { entries: packed >> BYTES_BITS, bytes: packed & ((1 << BYTES_BITS) - 1) }
    }
}

/// Reads the totals of a stream in a snapshot, because every append changes them.
pub async fn totals(tx: &Transaction, broker: BrokerId, stream: StreamId) -> LayerResult<Totals> {
    answer(ask(tx, broker, stream).await?)
}

/// Lists the totals of up to `limit` streams of a broker after `from` in order of ids, as a snapshot read.
pub async fn all_totals(
    tx: &Transaction,
    broker: BrokerId,
    from: Option<StreamId>,
    limit: usize,
) -> LayerResult<Vec<(StreamId, Totals)>> {
    let prefix = Key::new(broker, tags::TOTALS);
    let begin = from.map_or(prefix.children().begin, |from| after(keys::totals(broker, from).as_ref()));
    let range = KeyRange::new(begin, prefix.end());
    let page = tx.range(range, RangeOptions::first(limit).snapshot()).await?;
    let read = |row: millrace_storage::KeyValue| {
        let stream = Elements::after(&prefix, &row.key)?.uint()?;
        Ok((stream, Totals::unpacked(rows::decode_counter(&row.value)?)))
    };
    page.items.into_iter().map(read).collect()
}

pub(super) fn add_unmetered(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    added: Totals,
) -> LayerResult<()> {
    Ok(tx.atomic_add(keys::totals(broker, stream), added.packed())?)
}

pub(super) fn remove(
    tx: &Transaction,
    broker: BrokerId,
    stream: StreamId,
    removed: Totals,
) -> LayerResult<()> {
    if removed == Totals::default() {
        return Ok(());
    }
    tx.atomic_add(keys::totals(broker, stream), removed.packed().wrapping_neg())?;
    metering::change_messages(tx, broker, removed.entries.cast_signed().wrapping_neg())?;
    metering::change(tx, broker, Level::Bytes, removed.bytes.cast_signed().wrapping_neg(), tx.unix_ms())
}

/// Begins to read the totals of a stream, for which [`answer`] waits, so that the reads of many streams run at the same
/// time.
pub(super) fn ask(tx: &Transaction, broker: BrokerId, stream: StreamId) -> Reply<'_, Option<Bytes>> {
    tx.get(keys::totals(broker, stream), Read::Snapshot)
}

pub(super) fn answer(value: Option<Bytes>) -> LayerResult<Totals> {
    let packed = value.map_or(Ok(0), |value| rows::decode_counter(&value))?;
    Ok(Totals::unpacked(packed))
}

/// The stream must be dropped, so that no publish appends to it any more; `has` are its totals in this transaction.
pub(super) fn clear(tx: &Transaction, broker: BrokerId, stream: StreamId, has: Totals) -> LayerResult<()> {
    remove(tx, broker, stream, has)?;
    Ok(tx.clear(keys::totals(broker, stream))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_numbers_add_up() {
        let (mut all, mut some) = (Totals::default(), Totals::default());
        let mut packed = 0i64;
        for bytes in [0, 1, 1_000, 8_000_000, 99] {
            all.add(bytes);
            let mut one = Totals::default();
            one.add(bytes);
            packed = packed.wrapping_add(one.packed());
        }
        assert_eq!(Totals::unpacked(packed.cast_unsigned()), all);
        some.add(8_000_000);
        some.add(99);
        let left = packed.wrapping_add(some.packed().wrapping_neg());
        assert_eq!(Totals::unpacked(left.cast_unsigned()), Totals { entries: 3, bytes: 1_001 });
    }
}
