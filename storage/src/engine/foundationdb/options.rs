use std::{path::PathBuf, time::Duration};

use super::network::NetworkOptions;
use crate::limits;

#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The file that names the coordinators. The library rewrites it when they change, so it must
    /// be writable. By default that of the environment variable `FDB_CLUSTER_FILE`, `fdb.cluster`
    /// in the working directory, or `/etc/foundationdb/fdb.cluster`.
    pub cluster_file: Option<PathBuf>,
    /// Prefix of all keys of this store in the cluster: 1 to [`limits::PREFIX_BYTES_MAX`] bytes,
    /// not beginning with 0xff. No prefix of a store may begin with that of another one. Default
    /// `millrace/`.
    pub prefix: Vec<u8>,
    /// Age of a transaction at which its reads end with [`crate::StoreError::Unavailable`]. Commits
    /// wait. Default [`limits::TRANSACTION_AGE_MAX`].
    pub read_timeout: Duration,
    /// The id of this process's data center, so that reads go to servers there if the cluster has
    /// some; default none.
    pub datacenter: Option<String>,
    /// The same for all clusters of a process.
    pub network: NetworkOptions,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            cluster_file: None,
            prefix: b"millrace/".into(),
            read_timeout: limits::TRANSACTION_AGE_MAX,
            datacenter: None,
            network: NetworkOptions::default(),
        }
    }
}
