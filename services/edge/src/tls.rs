//! The TLS configurations of this process: loaded at the start, and again when `crate::reload` finds that their files have
//! changed. Session tickets stay valid over a reload.

use std::sync::Arc;

use arc_swap::ArcSwap;
use millrace_transport::tls::files::{Files, LoadError, Servers};

use crate::StartError;

#[derive(Debug)]
pub(crate) struct Tls {
    files: Files,
    servers: ArcSwap<Servers>,
}

impl Tls {
    pub(crate) fn start(files: &Files) -> Result<Self, StartError> {
        let servers = Servers::load(files, None).map_err(|error| StartError(error.to_string()))?;
        Ok(Self { files: files.clone(), servers: ArcSwap::from_pointee(servers) })
    }

    pub(crate) fn servers(&self) -> arc_swap::Guard<Arc<Servers>> {
        self.servers.load()
    }

    /// Open connections keep the old certificates.
    pub(crate) fn reload(&self) -> Result<(), LoadError> {
        let servers = Servers::load(&self.files, Some(&self.servers.load()))?;
        self.servers.store(Arc::new(servers));
        Ok(())
    }
}
