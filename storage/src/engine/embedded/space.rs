//! Decides which writes are accepted while disk space is short, and makes room.
//!
//! A deletion alone frees nothing. It is one more small write, which must reach a table and be
//! merged with the table that has the key; only then the old table is deleted. On a full disk no
//! new writes come that would fill a table and start a merge. So while space is short, this module
//! has memory written into tables again and again until fjall merges them.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{
    options::Options,
    store::{EmbeddedStore, UNMERGED},
};
use crate::{clock::instant, error::StoreError, version::StoreVersion};

/// This part of the reserve (a quarter) is closed even to transactions that free space.
const LAST_RESERVE_PART: u64 = 4;

const MERGE_EVERY: Duration = Duration::from_secs(1);

/// Tables to make: fjall merges [`UNMERGED`] tables together, and notices with two more that the
/// old ones are unused.
const TABLES: u8 = UNMERGED + 2;

/// The writes that are accepted; the error is for the others.
pub(super) enum Room {
    All,
    /// Only transactions with [`crate::TransactionOption::FreesSpace`].
    FreesSpace(StoreError),
    None(StoreError),
}

#[derive(Default)]
pub(super) struct DiskSpace {
    low: AtomicBool,
    /// Tables that are still to be made, to let fjall merge.
    to_make: AtomicU8,
    made_at: Mutex<Option<Instant>>,
}

impl DiskSpace {
    pub(super) fn room(&self, path: &Path, options: &Options) -> Result<Room, StoreError> {
        let free_bytes = (options.free_bytes)(path).map_err(|error| StoreError::Io(error.to_string()))?;
        let all_bytes = options.disk_reserve_bytes;
        let last_reserve_bytes = all_bytes / LAST_RESERVE_PART;
        let full = |reserve_bytes| StoreError::DiskFull { free_bytes, reserve_bytes };
        let room = if free_bytes >= all_bytes {
            Room::All
        } else if free_bytes >= last_reserve_bytes {
            Room::FreesSpace(full(all_bytes))
        } else {
            Room::None(full(last_reserve_bytes))
        };
        self.set_low(!matches!(room, Room::All), free_bytes);
        Ok(room)
    }

    fn set_low(&self, low: bool, free_bytes: u64) {
        match (self.low.swap(low, Ordering::Relaxed), low) {
            (false, true) => {
                tracing::warn!(
                    free_bytes,
                    "the disk is nearly full: the store accepts only writes that make room; free disk space"
                );
                self.wrote();
            }
            (true, false) => {
                tracing::info!(free_bytes, "the disk has room again: the store accepts all writes");
            }
            _ => {}
        }
    }

    /// This write may have deleted keys, so tables are made again to free their space.
    pub(super) fn wrote(&self) {
        if self.low.load(Ordering::Relaxed) {
            self.to_make.store(TABLES, Ordering::Relaxed);
        }
    }

    pub(super) fn make_room(&self, store: &EmbeddedStore, version: StoreVersion) -> Result<(), StoreError> {
        let mut made_at = self.made_at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = instant();
        let early = made_at.is_some_and(|made_at| now < made_at + MERGE_EVERY);
        let to_make = self.to_make.load(Ordering::Relaxed);
        if early || to_make == 0 || store.is_working() {
            return Ok(());
        }
        *made_at = Some(now);
        self.to_make.store(to_make - 1, Ordering::Relaxed);
        store.make_table(version)
    }
}
