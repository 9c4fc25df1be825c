//! The engine of one machine: a data folder.
//!
//! Group commit: one thread takes what waits, checks it, writes one batch into fjall's journal, syncs it with one fdatasync,
//! and only then makes it visible and acknowledges it. The journal and every table carry checksums (xxh3).
//!
//! Before fjall opens its files, `check` looks whether they are what was written: fjall repairs by cutting off. What is
//! damaged inside a table is said when it is read.
//!
//! Known limits: a cleared range costs the commit thread a read and a tombstone for each key that is there. A merge that comes
//! upon a damaged block fails, and so do writes for a moment, each time it is tried.

mod backup;
mod cell;
mod check;
mod counters;
mod folder;
mod options;
mod space;
mod store;
mod watermark;

use std::{path::Path, sync::Arc};

pub use backup::{RestoreError, restore};
pub use options::{DiskUse, FreeBytes, Options};

use crate::{
    database::Database,
    engine::{Engine, local::LocalEngine},
    error::{Error, OpenError},
    host::{Host, System},
    retry::RetryPolicy,
    stat::Stat,
};
use cell::Cell;
use folder::Folder;

/// A data folder that is open. The folder is closed when this and all its [`Database`]s and transactions are dropped.
#[derive(Clone)]
pub struct Embedded {
    engine: Arc<LocalEngine<Cell>>,
    cell: Arc<Cell>,
}

impl Embedded {
    /// Opens a data folder, or makes one of a folder that is empty or does not exist.
    ///
    /// # Errors
    /// The folder is in use, of a newer format, something else, damaged, or cannot be read and written.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
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

    /// The store.
    #[must_use]
    pub fn database_on(&self, host: Arc<dyn Host>, retry: RetryPolicy) -> Database {
        Database::new(self.engine.clone(), host, retry)
    }

    /// What the engine tells about itself, as [`Database::stats`].
    #[must_use]
    pub fn stats(&self) -> Vec<Stat> {
        self.engine.stats()
    }

    /// What the folder takes and what is left.
    ///
    /// # Errors
    /// The disk cannot be asked.
    pub fn disk_use(&self) -> Result<DiskUse, Error> {
        self.cell.disk_use()
    }
}
