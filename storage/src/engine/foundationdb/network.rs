//! The client library's network thread; a process has one.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use ::foundationdb::options::NetworkOption;
use millrace_fdb_boot::BootError;

use super::error::ConnectError;

/// Settings of the network thread, which the first store of a process sets for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkOptions {
    /// Certificates, needed for servers whose addresses in the cluster file end with `:tls`. For a
    /// field that is `None`, the library's environment variable counts, such as
    /// `FDB_TLS_CERTIFICATE_FILE`.
    pub tls: ClusterTls,
    /// A folder for the library's trace files; by default none are written.
    pub trace_folder: Option<PathBuf>,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClusterTls {
    /// This client's certificate chain, PEM.
    pub certificate_file: Option<PathBuf>,
    /// Its key, PEM.
    pub key_file: Option<PathBuf>,
    pub key_password: Option<String>,
    /// The authorities of servers, PEM.
    pub ca_file: Option<PathBuf>,
    /// Conditions that a server's certificate must meet, such as
    /// `Check.Valid=1,S.CN=fdb.example.org`.
    pub verify_peers: Option<String>,
}

impl fmt::Debug for ClusterTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterTls")
            .field("certificate_file", &self.certificate_file)
            .field("key_file", &self.key_file)
            .field("ca_file", &self.ca_file)
            .field("verify_peers", &self.verify_peers)
            .finish_non_exhaustive()
    }
}

impl NetworkOptions {
    fn list(&self) -> Vec<NetworkOption> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let tls = &self.tls;
        let options = [
            self.trace_folder.as_deref().map(|folder| NetworkOption::TraceEnable(path(folder))),
            tls.certificate_file.as_deref().map(|file| NetworkOption::TLSCertPath(path(file))),
            tls.key_password.clone().map(NetworkOption::TLSPassword),
            tls.key_file.as_deref().map(|file| NetworkOption::TLSKeyPath(path(file))),
            tls.ca_file.as_deref().map(|file| NetworkOption::TLSCaPath(path(file))),
            tls.verify_peers.clone().map(|rules| NetworkOption::TLSVerifyPeers(rules.into_bytes())),
        ];
        options.into_iter().flatten().collect()
    }
}

static RUNS_WITH: Mutex<Option<NetworkOptions>> = Mutex::new(None);

/// Has no effect if the network already runs with these settings.
pub(super) fn start(options: &NetworkOptions) -> Result<(), ConnectError> {
    let mut runs_with = RUNS_WITH.lock().unwrap_or_else(PoisonError::into_inner);
    match &*runs_with {
        Some(running) if running == options => return Ok(()),
        Some(_) => return Err(ConnectError::NetworkSettings),
        None => {}
    }
    millrace_fdb_boot::start(options.list()).map_err(|error| match error {
        BootError::Started => ConnectError::NotStartedAgain,
        BootError::Library(error) => error.into(),
    })?;
    *runs_with = Some(options.clone());
    Ok(())
}

/// Stops the network thread. Call it at the end of `main`, because the thread would otherwise run
/// while the library is unloaded. Unfinished operations then never end, and no store can be opened
/// any more.
pub fn stop() {
    *RUNS_WITH.lock().unwrap_or_else(PoisonError::into_inner) = None;
    millrace_fdb_boot::stop();
}
