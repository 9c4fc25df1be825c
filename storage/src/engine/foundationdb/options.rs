use std::{path::PathBuf, time::Duration};

use super::network::NetworkOptions;
use crate::limits;

#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The file that names the coordinators; the library rewrites it when they change, so it must
    /// be writable. By default the file named by `FDB_CLUSTER_FILE`, `fdb.cluster` in the working
    /// directory, or `/etc/foundationdb/fdb.cluster`.
    pub cluster_file: Option<PathBuf>,
    /// Prefix of all keys of this store in the cluster: 1 to [`limits::PREFIX_BYTES_MAX`] bytes,
    /// not beginning with 0xff. The prefix of a store must not begin with that of another.
    pub prefix: Vec<u8>,
    /// Age of a transaction at which its reads end with [`crate::StoreError::Unavailable`]; commits
    /// wait.
    pub read_timeout: Duration,
    /// The id of this process's data center; reads then go to servers there, if there are some.
    pub datacenter: Option<String>,
    /// Must be the same for all clusters of a process.
    pub network: NetworkOptions,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            cluster_file: None,
            prefix: b"millrace/".into(),
            // Later, so that a transaction of many reads ends as too old, and its caller reads less at once.
            read_timeout: limits::TRANSACTION_AGE_MAX + Duration::from_secs(1),
            datacenter: None,
            network: NetworkOptions::default(),
        }
    }
}
