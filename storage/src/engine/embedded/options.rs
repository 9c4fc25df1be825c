use std::{fmt, io, path::Path, sync::Arc};

use rustix::process::{Resource, getrlimit};

/// The reserve is this part of a small disk.
const RESERVE_DIVISOR: u64 = 8;
const RESERVE_MAX: u64 = 256 << 20;
const MEMTABLE_MIN: u64 = 1 << 20;

/// Tables may keep this part of the files of the process open, in these bounds: fjall's least, and
/// its default.
const OPEN_TABLES_DIVISOR: u64 = 32;
const OPEN_TABLES_MIN: u64 = 10;
const OPEN_TABLES_MAX: u64 = 900;

/// Settings of the embedded engine; all sizes are in bytes.
#[derive(Clone)]
pub struct Options {
    /// Memory for blocks that were read from tables.
    pub cache_bytes: u64,
    /// Writes in memory before they become a table, and up to five times as much while writes come
    /// faster than tables are made. A folder keeps the value that it was made with.
    pub memtable_bytes: u64,
    /// Free disk space below which only transactions that free space are accepted
    /// ([`crate::TransactionOption::FreesSpace`]); below a quarter of it, none. It must fit the new
    /// tables of a merge, which are written before the old ones are deleted: 24 times
    /// `memtable_bytes` at worst. Without that space a merge fails, loses nothing, and is retried.
    pub disk_reserve_bytes: u64,
    /// Threads that make and merge tables.
    pub background_threads: usize,
    /// Files of tables that stay open after reading, ten at least. The default follows the limit of
    /// open files, so that a small limit has room for journals, new tables and other parts of the
    /// process.
    pub open_tables_max: usize,
    /// Returns the free bytes of the folder's disk.
    pub free_bytes: FreeBytes,
}

pub type FreeBytes = Arc<dyn Fn(&Path) -> io::Result<u64> + Send + Sync>;

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 48 << 20,
            memtable_bytes: 48 << 20,
            disk_reserve_bytes: RESERVE_MAX,
            background_threads: 2,
            open_tables_max: open_tables(getrlimit(Resource::Nofile).current),
            free_bytes: Arc::new(free_bytes),
        }
    }
}

impl Options {
    /// As [`Options::default`], with a smaller reserve and memtable if the disk of this path, or of
    /// the folder in which it will be made, is small.
    pub fn of_disk(path: &Path) -> Self {
        Self::of_size(disk_bytes(path).unwrap_or(u64::MAX))
    }

    fn of_size(disk_bytes: u64) -> Self {
        let options = Self::default();
        let disk_reserve_bytes = options.disk_reserve_bytes.min(disk_bytes / RESERVE_DIVISOR);
        // As by default, a memtable is three sixteenths of the reserve.
        let memtable_bytes = options.memtable_bytes.min(disk_reserve_bytes / 16 * 3).max(MEMTABLE_MIN);
        Self { memtable_bytes, disk_reserve_bytes, ..options }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("cache_bytes", &self.cache_bytes)
            .field("memtable_bytes", &self.memtable_bytes)
            .field("disk_reserve_bytes", &self.disk_reserve_bytes)
            .field("background_threads", &self.background_threads)
            .field("open_tables_max", &self.open_tables_max)
            .finish_non_exhaustive()
    }
}

fn disk_bytes(path: &Path) -> Option<u64> {
    // A bare name has the empty path as its ancestor, which no disk has.
    let path = std::path::absolute(path).ok()?;
    let disk = path.ancestors().find_map(|path| rustix::fs::statvfs(path).ok())?;
    Some(disk.f_blocks.saturating_mul(disk.f_frsize))
}

fn free_bytes(path: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(path)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUse {
    pub used_bytes: u64,
    pub free_bytes: u64,
}

fn open_tables(open_files_max: Option<u64>) -> usize {
    let share = open_files_max.map_or(OPEN_TABLES_MAX, |files| files / OPEN_TABLES_DIVISOR);
    usize::try_from(share.clamp(OPEN_TABLES_MIN, OPEN_TABLES_MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_folder_that_is_not_there_is_on_the_disk_of_this_folder() {
        let here = disk_bytes(&std::env::current_dir().unwrap());
        assert!(here.is_some());
        for path in ["not-there", "./not-there", "not/there"] {
            assert_eq!(disk_bytes(Path::new(path)), here, "{path}");
        }
    }

    #[test]
    fn the_reserve_of_a_small_disk_is_an_eighth_of_it() {
        const MIB: u64 = 1 << 20;
        let of = |size| {
            let options = Options::of_size(size);
            (options.disk_reserve_bytes, options.memtable_bytes)
        };
        assert_eq!(of(MIB), (MIB / 8, MIB));
        assert_eq!(of(200 * MIB), (25 * MIB, 25 * MIB / 16 * 3));
        assert_eq!(of(2_048 * MIB), (256 * MIB, 48 * MIB));
        assert_eq!(of(u64::MAX), (256 * MIB, 48 * MIB));
    }

    #[test]
    fn tables_keep_a_part_of_the_files_of_the_process_open() {
        let files = [Some(64), Some(1_024), Some(20_000), None];
        assert_eq!(files.map(open_tables), [10, 32, 625, 900]);
    }
}
