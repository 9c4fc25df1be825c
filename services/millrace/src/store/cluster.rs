//! Opens a store in a FoundationDB cluster.

use std::time::Duration;

use millrace_storage::{ClusterOptions, ClusterTls, ConnectError, Database, FoundationDb, NetworkOptions};

use super::Cluster;
use crate::failure::Failure;

/// A cluster must answer within this time at the start.
const CLUSTER_ANSWER_MAX: Duration = Duration::from_secs(10);

/// Dropping it closes the connection for good: the database must not be used afterwards.
pub(crate) struct OpenCluster(FoundationDb);

impl OpenCluster {
    pub(super) fn database(&self) -> Database {
        self.0.database()
    }
}

impl Drop for OpenCluster {
    fn drop(&mut self) {
        millrace_storage::stop_network();
    }
}

impl Cluster {
    /// Also checks that the cluster answers.
    pub(super) fn open(&self) -> Result<OpenCluster, Failure> {
        // The library does not say which file is missing.
        let files = [
            ("--fdb-tls-cert", &self.tls_cert),
            ("--fdb-tls-key", &self.tls_key),
            ("--fdb-tls-ca", &self.tls_ca),
        ];
        for (name, path) in files {
            if let Some(path) = path
                && let Err(error) = std::fs::File::open(path)
            {
                let path = path.display();
                return Err(Failure::Run(format!(
                    "{name} {path} cannot be read ({error}): name another file"
                )));
            }
        }
        let tls = ClusterTls {
            certificate_file: self.tls_cert.clone(),
            key_file: self.tls_key.clone(),
            ca_file: self.tls_ca.clone(),
            verify_peers: self.tls_verify.clone(),
            key_password: None,
        };
        let options = ClusterOptions {
            cluster_file: Some(self.file.clone()),
            prefix: format!("{}/", self.prefix).into_bytes(),
            network: NetworkOptions { tls, ..NetworkOptions::default() },
            ..ClusterOptions::default()
        };
        let opened = FoundationDb::open(&options).map(OpenCluster).map_err(|error| self.failure(&error))?;
        opened.0.prepare(CLUSTER_ANSWER_MAX).map_err(|error| self.failure(&error))?;
        Ok(opened)
    }

    fn failure(&self, error: &ConnectError) -> Failure {
        let file = self.file.display();
        let advice = match error {
            ConnectError::ClusterFile { .. } => {
                "name the one of your cluster with --fdb-cluster-file".to_owned()
            }
            ConnectError::Unreachable { .. } => format!(
                "see that it runs and can be reached at the addresses in {file} (`fdbcli -C {file} --exec status`), and, where they \
                 end with \":tls\", that --fdb-tls-cert, --fdb-tls-key and --fdb-tls-ca are those of the cluster"
            ),
            ConnectError::NewerFormat { .. } => {
                "start the version that wrote it, or set another --fdb-prefix".to_owned()
            }
            ConnectError::NotAStore => "set another --fdb-prefix; nothing was changed".to_owned(),
            _ => format!("see that {file} is the file of a cluster, and the files of --fdb-tls-... are PEM"),
        };
        let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(" ({cause})"));
        Failure::Run(format!("{error}{cause}: {advice}"))
    }
}
