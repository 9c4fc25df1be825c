//! The duties of an engine. [`crate::Transaction`] has checked limits and key space before it calls one.

pub(crate) mod embedded;
#[cfg(feature = "foundationdb")]
pub(crate) mod foundationdb;
mod local;
pub(crate) mod memory;
mod range_set;
mod stamped;

use bytes::Bytes;

use crate::{
    completion::Completion,
    key::KeyRange,
    read::{Page, RangeOptions, Read},
    reply::Reply,
    stat::Stat,
    transaction::TransactionOption,
    version::Version,
};

/// A store of transactions.
pub trait Engine: Send + Sync + 'static {
    /// A new transaction. It gets its read version with its first read.
    fn begin(&self) -> Box<dyn EngineTransaction>;

    /// Counters and state of the engine.
    fn stats(&self) -> Vec<Stat> {
        Vec::new()
    }
}

/// One transaction of an engine. Reads see the transaction's own writes.
pub trait EngineTransaction: Send + Sync {
    /// The version that this transaction reads at. It includes every commit that was acknowledged before the first
    /// call.
    fn read_version(&self) -> Reply<'_, Version>;

    /// The value of a key.
    fn get<'a>(&'a self, key: &[u8], read: Read) -> Reply<'a, Option<Bytes>>;

    /// The first keys and values of a range, or with `reverse` the last, from the end.
    fn range<'a>(&'a self, range: KeyRange, options: RangeOptions) -> Reply<'a, Page>;

    /// Sets a key.
    fn set(&self, key: Bytes, value: Bytes);

    /// Deletes a key.
    fn clear(&self, key: Bytes);

    /// Deletes all keys of a range.
    fn clear_range(&self, range: KeyRange);

    /// Adds to a little-endian integer of eight bytes, at commit and without a read; an absent one is 0.
    fn atomic_add(&self, key: Bytes, addend: i64);

    /// Sets the key `template` with the ten bytes at `offset` replaced by the commit's versionstamp.
    fn set_versionstamped_key(&self, template: Vec<u8>, offset: usize, value: Bytes);

    /// Makes this transaction conflict with later commits that write in the range, as if it had read the range.
    fn add_read_conflict_range(&self, range: KeyRange);

    /// Makes readers of the range conflict, as if this transaction had written it.
    fn add_write_conflict_range(&self, range: KeyRange);

    /// Applies an option, if this engine has it.
    fn set_option(&self, option: TransactionOption) {
        let _ = option;
    }

    /// Commits. The completion gets the result when the transaction is durable or has failed. This is the last call.
    fn commit(&self, done: Completion);
}
