//! The mapped control file, one independent number for each [`Field`], through which the test driver, another process,
//! makes system calls of this process fail and reads counters. The driver sets unlimited space before this process starts.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use millrace_faults::control::{CONTROL_BYTES, Field};

use crate::system;

pub(crate) struct Panel(&'static [AtomicU64]);

impl Panel {
    pub(crate) fn map(fd: c_int) -> Option<Self> {
        let place = system::map(fd, CONTROL_BYTES)?;
        // SAFETY: the memory is mapped for good, aligned to a page, and both processes use whole
        // numbers of 64 bits.
        Some(Self(unsafe { std::slice::from_raw_parts(place.cast::<AtomicU64>(), CONTROL_BYTES / 8) }))
    }

    pub(crate) fn get(&self, field: Field) -> u64 {
        self.0[field as usize].load(Relaxed)
    }

    pub(crate) fn count(&self, field: Field) -> u64 {
        self.0[field as usize].fetch_add(1, Relaxed)
    }

    /// Decides about the next write, under the recorder's lock: returns its error, or how many of `bytes` fit on the disk.
    pub(crate) fn admit(&self, bytes: usize) -> Result<usize, c_int> {
        let number = self.count(Field::Writes);
        if (self.get(Field::WriteFailsFrom)..self.get(Field::WriteFailsUntil)).contains(&number) {
            self.count(Field::WriteErrors);
            return Err(libc::EIO);
        }
        let left = self.get(Field::SpaceBytes);
        if left == u64::MAX {
            return Ok(bytes);
        }
        let fits = usize::try_from(left).unwrap_or(usize::MAX).min(bytes);
        if fits == 0 && bytes > 0 {
            self.count(Field::FullErrors);
            return Err(libc::ENOSPC);
        }
        // If the driver has changed the space since, its value stays.
        let space = &self.0[Field::SpaceBytes as usize];
        let _ = space.compare_exchange(left, left - fits as u64, Relaxed, Relaxed);
        Ok(fits)
    }

    pub(crate) fn sync_fails(&self) -> bool {
        let number = self.count(Field::Syncs);
        let fails = (self.get(Field::SyncFailsFrom)..self.get(Field::SyncFailsUntil)).contains(&number);
        if fails {
            self.count(Field::SyncErrors);
        }
        fails
    }

    pub(crate) fn delay_sync(&self) {
        let (min, max) = (self.get(Field::SyncMicrosMin), self.get(Field::SyncMicrosMax));
        if max > 0 {
            let spread = max.saturating_sub(min) + 1;
            let random = self.get(Field::Syncs).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            system::pause_micros(min + random % spread);
        }
    }
}
