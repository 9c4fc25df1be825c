//! How much a stream has.

use millrace_storage::{Read, Transaction};

use super::{StreamId, keys};
use crate::{BrokerId, error::Result, rows};

/// Entries and the bytes of their bodies.
///
/// Both stand in one counter, entries in the upper 28 bits and bytes in the lower 36, so that an append adds to one key: a
/// stream must be trimmed before it has 64 GiB or 268 million entries. Beyond that the numbers are wrong, not the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries.
    pub entries: u64,
    /// Bytes of their bodies; one that several streams share counts in each.
    pub bytes: u64,
}

const BYTES_BITS: u32 = 36;

impl Totals {
    /// Adds an entry.
    pub fn add(&mut self, bytes: usize) {
        self.entries += 1;
        self.bytes += bytes as u64;
    }

    /// A sum of packed numbers is the packed sum, and so is a difference.
    fn packed(self) -> i64 {
        (self.entries << BYTES_BITS).wrapping_add(self.bytes).cast_signed()
    }

    fn unpacked(packed: u64) -> Self {
        Self { entries: packed >> BYTES_BITS, bytes: packed & ((1 << BYTES_BITS) - 1) }
    }
}

/// How much a stream has. A snapshot read: every append changes it.
///
/// # Errors
/// The store's.
pub async fn totals(tx: &Transaction, broker: BrokerId, stream: StreamId) -> Result<Totals> {
    let packed = rows::counter(tx, &keys::totals(broker, stream), Read::Snapshot).await?;
    Ok(Totals::unpacked(packed))
}

pub(super) fn add(tx: &Transaction, broker: BrokerId, stream: StreamId, added: Totals) -> Result<()> {
    Ok(tx.atomic_add(keys::totals(broker, stream), added.packed())?)
}

pub(super) fn remove(tx: &Transaction, broker: BrokerId, stream: StreamId, removed: Totals) -> Result<()> {
    if removed == Totals::default() {
        return Ok(());
    }
    Ok(tx.atomic_add(keys::totals(broker, stream), removed.packed().wrapping_neg())?)
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
