//! Stores in a cluster for tests, each with keys of its own.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use super::{ClusterOptions, ConnectError, FoundationDb};
use crate::{
    completion::block_on,
    database::Database,
    error::StoreError,
    host::Host,
    interface::{Engine, EngineTransaction},
    key::KeyRange,
    retry::RetryPolicy,
    stat::Stat,
};

/// Dropping it clears the keys and waits for the commit. A completion must not hold the last
/// handle, because it runs on the thread that would end the wait.
struct ScratchKeys(FoundationDb);

impl FoundationDb {
    /// Opens an empty store with keys of its own, so that tests can share a cluster.
    /// `FDB_CLUSTER_FILE` must be set, so that no test runs on a default cluster by accident.
    ///
    /// # Errors
    /// As [`FoundationDb::open`].
    ///
    /// # Panics
    /// The variable is not set.
    pub fn scratch(host: Arc<dyn Host>) -> Result<Database, ConnectError> {
        let file = std::env::var_os("FDB_CLUSTER_FILE");
        let file = file.expect("FDB_CLUSTER_FILE names the cluster for tests; `make test-fdb` starts one");
        let random = RandomState::new().hash_one(0) & 0xffff_ffff_ffff;
        let options = ClusterOptions {
            cluster_file: Some(file.into()),
            prefix: format!("t/{random:012x}/").into_bytes(),
            ..ClusterOptions::default()
        };
        let scratch = ScratchKeys(Self::open(&options)?);
        Ok(Database::new(Arc::new(scratch), host, RetryPolicy::default()))
    }
}

impl Engine for ScratchKeys {
    fn begin(&self) -> Box<dyn EngineTransaction> {
        self.0.begin()
    }

    fn stats(&self) -> Vec<Stat> {
        self.0.stats()
    }
}

impl Drop for ScratchKeys {
    fn drop(&mut self) {
        let database = self.0.database();
        let clear = database.run(async |tx, _| tx.clear_range(KeyRange::prefix([])));
        let cleared: Result<(), StoreError> = block_on(clear);
        if let Err(error) = cleared {
            tracing::warn!(%error, "the keys of a test are left in the cluster");
        }
    }
}
