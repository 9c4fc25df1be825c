//! The interface that an engine implements; [`crate::Transaction`] checks limits and key space
//! before it calls an engine.

use bytes::Bytes;

use crate::{
    completion::Completion,
    key::KeyRange,
    read::{RangeOptions, RangePage, Read},
    reply::Reply,
    stat::Stat,
    version::StoreVersion,
};

/// Options of a transaction, set before its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionOption {
    /// The transaction frees space: it deletes more than it writes, as a trim or the end of a
    /// session does; or it is small, and lets a person free space, as a sign-in does. The embedded
    /// engine accepts it even when the disk is nearly full, see
    /// [`crate::Options::disk_reserve_bytes`].
    FreesSpace,
}

pub trait Engine: Send + Sync + 'static {
    /// Begins a transaction, which gets its read version with its first read.
    fn begin(&self) -> Box<dyn EngineTransaction>;

    fn stats(&self) -> Vec<Stat> {
        Vec::new()
    }
}

/// One transaction of an engine, with methods that mean the same as those of
/// [`crate::Transaction`].
pub trait EngineTransaction: Send + Sync {
    /// A version that includes every commit acknowledged before the first call.
    fn read_version(&self) -> Reply<'_, StoreVersion>;

    /// An engine may ignore it and read at a newer version.
    fn set_read_version(&self, version: StoreVersion) {
        let _ = version;
    }

    fn get<'a>(&'a self, key: &[u8], read: Read) -> Reply<'a, Option<Bytes>>;

    /// Reads a page from the beginning of the range, or with `reverse` from its end.
    fn range<'a>(&'a self, range: KeyRange, options: RangeOptions) -> Reply<'a, RangePage>;

    fn set(&self, key: Bytes, value: Bytes);

    fn clear(&self, key: Bytes);

    fn clear_range(&self, range: KeyRange);

    fn atomic_add(&self, key: Bytes, addend: i64);

    /// `template` is the key with ten bytes at `offset` that the versionstamp replaces.
    fn set_versionstamped_key(&self, template: Vec<u8>, offset: usize, value: Bytes);

    fn add_read_conflict_range(&self, range: KeyRange);

    fn add_write_conflict_range(&self, range: KeyRange);

    fn set_option(&self, option: TransactionOption) {
        let _ = option;
    }

    /// Commits; no other method is called afterwards. The completion gets the result when the
    /// transaction is durable or has failed.
    fn commit(&self, done: Completion);
}
