//! The engine of one machine: a data folder.
//!
//! One thread takes the queued transactions, checks them, writes them as one batch into fjall's
//! journal, and syncs it with one fdatasync (group commit). Only then it makes the batch visible
//! and acknowledges it. The journal and every table carry checksums (xxh3). `check` verifies the
//! files before fjall opens them, because fjall repairs by truncating. Damage inside a table is
//! reported when it is read.
//!
//! Known limits: for a cleared range, the commit thread reads and deletes each present key. A merge
//! of tables that meets a damaged block fails each time, and the writes of that moment fail with it.

mod backup;
mod cell;
mod check;
mod counters;
mod folder;
mod gauges;
mod options;
mod recovery;
mod rewrite;
mod space;
mod store;
mod versions;
mod watermark;

use std::{path::Path, sync::Arc};

pub use backup::{RestoreError, restore};
pub use options::{DiskUse, FreeBytes, Options};
pub use recovery::FolderRecovery;

/// Names of threads whose panics the store handles, so the process must not end with them.
pub const CAUGHT_THREADS: [&str; 2] = [store::OPEN_THREAD, gauges::GAUGES_THREAD];

use crate::{
    database::Database,
    engine::local::LocalEngine,
    error::{OpenError, StoreError},
    host::{Host, System},
    interface::Engine,
    retry::RetryPolicy,
    stat::Stat,
};
use cell::Cell;
use folder::Folder;

/// An open data folder. It closes when this and all its [`Database`]s and transactions are dropped.
#[derive(Clone)]
pub struct Embedded {
    engine: Arc<LocalEngine<Cell>>,
    cell: Arc<Cell>,
}

impl Embedded {
    /// Opens a data folder, or makes one in an empty or missing folder.
    ///
    /// # Errors
    /// The folder is in use, of a newer format, damaged, not a data folder, has the name of a copy
    /// that did not end, or cannot be read and written.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        backup::refuse_partial(path.as_ref())?;
        let folder = Folder::open(path.as_ref())?;
        let io = |source| OpenError::Io { path: path.as_ref().into(), source };
        let cell = Arc::new(Cell::open(folder, options)?);
        let engine = Arc::new(LocalEngine::start(cell.clone()).map_err(io)?);
        Ok(Self { engine, cell })
    }

    /// The store, with the machine's clock and the default retries.
    #[must_use]
    pub fn database(&self) -> Database {
        self.database_on(Arc::new(System::new()), RetryPolicy::default())
    }

    /// Like [`Embedded::database`], with the caller's clock and retries.
    #[must_use]
    pub fn database_on(&self, host: Arc<dyn Host>, retry: RetryPolicy) -> Database {
        Database::new(self.engine.clone(), host, retry)
    }

    #[must_use]
    pub fn recovery(&self) -> FolderRecovery {
        self.cell.recovery()
    }

    #[must_use]
    pub fn stats(&self) -> Vec<Stat> {
        self.engine.stats()
    }

    /// # Errors
    /// The system does not report the free bytes.
    pub fn disk_use(&self) -> Result<DiskUse, StoreError> {
        self.cell.disk_use()
    }
}
