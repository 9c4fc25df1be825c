use std::{fmt, io, path::Path, sync::Arc};

/// Settings of the embedded engine; all sizes are in bytes.
#[derive(Clone)]
pub struct Options {
    /// Memory for blocks that were read from tables.
    pub cache_bytes: u64,
    /// Writes in memory before they become a table, and up to five times as much while writes come
    /// faster than tables are made. A folder keeps the value that it was made with.
    pub memtable_bytes: u64,
    /// Free disk space below which only transactions that make room are accepted
    /// ([`crate::TransactionOption::Cleanup`]); below a quarter of it, none. It must fit the new
    /// tables of a merge, which are written before the old ones are deleted: sixteen times
    /// `memtable_bytes` at worst. Without that space a merge fails, loses nothing, and is retried.
    pub disk_reserve_bytes: u64,
    /// Threads that make and merge tables.
    pub background_threads: usize,
    /// Returns the free bytes of the folder's disk.
    pub free_bytes: FreeBytes,
}

pub type FreeBytes = Arc<dyn Fn(&Path) -> io::Result<u64> + Send + Sync>;

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            memtable_bytes: 64 << 20,
            disk_reserve_bytes: 256 << 20,
            background_threads: 2,
            free_bytes: Arc::new(free_bytes),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("cache_bytes", &self.cache_bytes)
            .field("memtable_bytes", &self.memtable_bytes)
            .field("disk_reserve_bytes", &self.disk_reserve_bytes)
            .field("background_threads", &self.background_threads)
            .finish_non_exhaustive()
    }
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
