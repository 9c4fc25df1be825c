//! Room on the disk: what may still be written, and making room.
//!
//! A deletion frees nothing by itself. It is a small write more, which must get from memory into a table and be merged with
//! the table that has the key; only then the old table goes. With a disk that takes no new writes neither would ever come
//! about, so as long as there is little room, what is in memory is written into tables again and again, until fjall
//! merges them.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{
    options::Options,
    store::{Store, UNMERGED},
};
use crate::{error::Error, host::instant, version::Version};

/// What is kept for writes that make room, as a part of the reserve.
const CLEANUP_PART: u64 = 4;

/// Time between two tables that are made to have something to merge.
const MERGE_EVERY: Duration = Duration::from_secs(1);

/// Tables to make: as many as fjall merges together, and some with which it notes that nobody reads the old ones any more.
const TABLES: u8 = UNMERGED + 2;

/// What the disk has room for.
pub(super) enum Room {
    All,
    /// For what makes room.
    Cleanup(Error),
    None(Error),
}

/// Watches the room on one disk.
#[derive(Default)]
pub(super) struct Space {
    low: AtomicBool,
    /// Tables to make until all that was deleted so far is merged.
    to_make: AtomicU8,
    made_at: Mutex<Option<Instant>>,
}

impl Space {
    /// What the disk has room for now.
    pub(super) fn room(&self, path: &Path, options: &Options) -> Result<Room, Error> {
        let free_bytes = (options.free_bytes)(path).map_err(|error| Error::Io(error.to_string()))?;
        let all_bytes = options.disk_reserve_bytes;
        let cleanup_bytes = all_bytes / CLEANUP_PART;
        let full = |reserve_bytes| Error::DiskFull { free_bytes, reserve_bytes };
        let room = if free_bytes >= all_bytes {
            Room::All
        } else if free_bytes >= cleanup_bytes {
            Room::Cleanup(full(all_bytes))
        } else {
            Room::None(full(cleanup_bytes))
        };
        self.set_low(!matches!(room, Room::All), free_bytes);
        Ok(room)
    }

    fn set_low(&self, low: bool, free_bytes: u64) {
        match (self.low.swap(low, Ordering::Relaxed), low) {
            (false, true) => {
                tracing::warn!(free_bytes, "the disk is nearly full: only what makes room is written");
                self.wrote();
            }
            (true, false) => tracing::info!(free_bytes, "the disk has room again: writes are taken again"),
            _ => {}
        }
    }

    /// Something was written, so there may be deletions to merge.
    pub(super) fn wrote(&self) {
        if self.low.load(Ordering::Relaxed) {
            self.to_make.store(TABLES, Ordering::Relaxed);
        }
    }

    /// Makes a table, if that can lead to room.
    pub(super) fn make_room(&self, store: &Store, version: Version) -> Result<(), Error> {
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
