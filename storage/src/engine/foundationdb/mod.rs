//! The engine of a region: a FoundationDB cluster, in which a store has all keys below a prefix.
//!
//! FoundationDB has the interface's semantics; this module only maps keys, errors and futures. The
//! client library's network thread wakes the futures, so they run under any executor, very many at
//! once on one thread.
//!
//! - **Commits have no timeout.** An attempt that a timeout gave up may still commit later, after
//!   its second attempt. FoundationDB itself reports "unknown" only when the attempt cannot commit
//!   any more. So reads have a timeout, and a commit waits for its answer, however long the cluster
//!   is unreachable.
//! - **Automatic idempotency is not used.** This option, which looks up whether an unknown commit
//!   happened, is in 7.4 "experimental and not recommended for use in production".
//!   [`crate::Attempt::maybe_committed`] serves instead.
//! - **A range read requests one row more than its page, and reads on.** FoundationDB ends an
//!   answer where one server ends (80 kB, the end of a shard), and after a limit says only that
//!   there may be more; the interface says whether there is more.
//! - **Versionstamped keys are given to the library at the commit.** Until its read version is
//!   known, the library takes such a key for the key with stamp 0. Clearing older keys would remove
//!   it, and older keys could not be read.
//!
//! Known limits: a process has one set of network settings (TLS, trace) for all clusters. While
//! several client libraries are loaded, for upgrades without a restart, a commit during the change
//! of version is unknown and may still be under way.

mod counters;
mod error;
mod format;
mod network;
mod options;
mod scratch;
mod space;
mod task;
mod transaction;
mod writes;

use std::{path::Path, sync::Arc, time::Duration};

use ::foundationdb as fdb;
use fdb::options::DatabaseOption;

pub use error::ConnectError;
pub use network::{ClusterTls, NetworkOptions, stop as stop_network};
pub use options::ClusterOptions;

use crate::{
    completion::block_on,
    database::Database,
    host::{Host, System},
    interface::{Engine, EngineTransaction},
    retry::RetryPolicy,
    stat::Stat,
};
use counters::Counters;
use space::Space;
use transaction::FdbTransaction;

/// A store in a FoundationDB cluster. The connection closes when this and all its [`Database`]s and
/// transactions are dropped.
#[derive(Clone)]
pub struct FoundationDb(Arc<ClusterHandle>);

struct ClusterHandle {
    database: Arc<fdb::Database>,
    space: Space,
    counters: Counters,
    host: Arc<dyn Host>,
}

impl FoundationDb {
    /// Opens a store without contacting the cluster, see [`FoundationDb::prepare`]. While the
    /// cluster cannot be reached, reads end with [`crate::StoreError::Unavailable`].
    ///
    /// # Errors
    /// The cluster file, the prefix or the client library is not usable, or other network settings
    /// are in use.
    pub fn open(options: &ClusterOptions) -> Result<Self, ConnectError> {
        let space = Space::new(&options.prefix)?;
        let path = options.cluster_file.as_deref().map(check_cluster_file).transpose()?;
        network::start(&options.network)?;
        let database = Arc::new(fdb::Database::new(path)?);
        set_read_timeout(&database, options.read_timeout)?;
        if let Some(datacenter) = &options.datacenter {
            database.set_option(DatabaseOption::DatacenterId(datacenter.clone()))?;
        }
        let host = Arc::new(System::new());
        Ok(Self(Arc::new(ClusterHandle { database, space, counters: Counters::default(), host })))
    }

    /// Opens a store over a database that FoundationDB's simulator opened; the simulator runs the
    /// network. So nothing here starts a thread or reads the machine's clock, and time comes from
    /// `host`.
    ///
    /// # Errors
    /// The prefix is invalid, or the client library refuses it.
    pub fn over(
        database: Arc<fdb::Database>,
        prefix: &[u8],
        read_timeout: Duration,
        host: Arc<dyn Host>,
    ) -> Result<Self, ConnectError> {
        let space = Space::new(prefix)?;
        set_read_timeout(&database, read_timeout)?;
        Ok(Self(Arc::new(ClusterHandle { database, space, counters: Counters::default(), host })))
    }

    #[must_use]
    pub fn database(&self) -> Database {
        self.database_on(Arc::new(System::new()), RetryPolicy::default())
    }

    /// Only `retry` decides about retries, because the client library's own are off.
    #[must_use]
    pub fn database_on(&self, host: Arc<dyn Host>, retry: RetryPolicy) -> Database {
        Database::new(Arc::new(self.clone()), host, retry)
    }
}

fn set_read_timeout(database: &fdb::Database, timeout: Duration) -> Result<(), ConnectError> {
    let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX).max(1);
    Ok(database.set_option(DatabaseOption::TransactionTimeout(milliseconds))?)
}

/// Checks that the file can be read, because the library does not explain why it cannot.
fn check_cluster_file(path: &Path) -> Result<&str, ConnectError> {
    let wrong = |source| ConnectError::ClusterFile { path: path.into(), source };
    std::fs::File::open(path).map_err(wrong)?;
    path.to_str().ok_or_else(|| wrong(std::io::ErrorKind::InvalidFilename.into()))
}

impl Engine for FoundationDb {
    fn begin(&self) -> Box<dyn EngineTransaction> {
        Box::new(FdbTransaction::begin(self.0.clone()))
    }

    fn stats(&self) -> Vec<Stat> {
        if let Ok(busy) = block_on(self.0.database.get_main_thread_busyness()) {
            self.0.counters.busy_permille.set((busy * 1000.0) as u64);
        }
        self.0.counters.list()
    }
}
