//! Writes of an open transaction that the client library does not have yet.
//!
//! The library keeps a tree of a transaction's writes, so that its reads see them. This tree took a fifth of the CPU time
//! of a server that stores messages, whose transactions read first and write afterwards. So the library gets the writes at
//! the next read, or else a second transaction commits them, at the same read version and with the same read conflicts: it
//! may have no tree (READ_YOUR_WRITES_DISABLE), because it reads nothing.

use ::foundationdb as fdb;
use bytes::Bytes;
use fdb::{
    FdbResult,
    options::{ConflictRangeType, MutationType, TransactionOption as FdbOption},
};

use super::{ClusterHandle, space::Space};
use crate::engine::{range_set::RangeSet, stamped::StampedKeys};

pub(super) enum PendingWrite {
    Set(Vec<u8>, Bytes),
    Clear(Vec<u8>),
    ClearRange(EndKeys),
    Add(Vec<u8>, i64),
    Conflict(EndKeys),
}

pub(super) type EndKeys = (Vec<u8>, Vec<u8>);

impl PendingWrite {
    pub(super) fn apply(&self, open: &fdb::Transaction) -> FdbResult<()> {
        match self {
            Self::Set(key, value) => open.set(key, value),
            Self::Clear(key) => open.clear(key),
            Self::ClearRange((begin, end)) => open.clear_range(begin, end),
            Self::Add(key, addend) => open.atomic_op(key, &addend.to_le_bytes(), MutationType::Add),
            Self::Conflict((begin, end)) => {
                return open.add_conflict_range(begin, end, ConflictRangeType::Write);
            }
        }
        Ok(())
    }
}

pub(super) fn stamp(open: &fdb::Transaction, space: &Space, stamped: StampedKeys) {
    for stamped in stamped.into_vec() {
        let key = space.stamped(&stamped);
        open.atomic_op(&key, &stamped.value, MutationType::SetVersionstampedKey);
    }
}

pub(super) fn without_reads(
    cluster: &ClusterHandle,
    reads: RangeSet,
    writes: &[PendingWrite],
) -> FdbResult<fdb::Transaction> {
    let open = cluster.database.create_trx()?;
    open.set_option(FdbOption::ReadYourWritesDisable)?;
    // The library does not join them here, and a cluster checks each.
    for (begin, end) in reads.into_ranges().map(|range| cluster.space.ends(&range)) {
        open.add_conflict_range(&begin, &end, ConflictRangeType::Read)?;
    }
    writes.iter().try_for_each(|write| write.apply(&open))?;
    Ok(open)
}
