//! Settings of a store in a cluster.

use std::{path::PathBuf, time::Duration};

use super::network::NetworkOptions;
use crate::limits;

/// Which cluster, and how it is reached.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The file that names the coordinators. The library rewrites it when they change, so it must be writable. By default that of the
    /// environment variable `FDB_CLUSTER_FILE`, `fdb.cluster` in the working directory, or `/etc/foundationdb/fdb.cluster`.
    pub cluster_file: Option<PathBuf>,
    /// What all keys of this store begin with in the cluster: 1 to [`limits::PREFIX_BYTES_MAX`] bytes, not beginning with 0xff.
    /// Stores of one cluster need prefixes of which none begins with another. Default `millrace/`.
    pub prefix: Vec<u8>,
    /// How long after its begin the reads of a transaction end with [`crate::Error::Unavailable`]. Commits wait.
    /// Default [`limits::TRANSACTION_AGE_MAX`].
    pub read_timeout: Duration,
    /// The id of this process's data center, so that reads go to servers there if the cluster has some. Default none.
    pub datacenter: Option<String>,
    /// What is the same for all clusters of a process.
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
