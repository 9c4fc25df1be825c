//! Checks the files that settings name, for `millrace config check`. Files of secrets are read with
//! the settings themselves, so their errors come from there.

use std::fs;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::settings::Settings;
use crate::store::{Cluster, StoreLocation};

pub(crate) fn check(settings: &Settings) -> Result<(), Failure> {
    millrace_edge::check_files(&settings.edge).map_err(|error| Failure::Settings(error.to_string()))?;
    let StoreLocation::Cluster(Cluster { file, tls_cert, tls_key, tls_ca, .. }) = &settings.store else {
        return Ok(());
    };
    readable("fdb_cluster_file", Some(file))?;
    readable("fdb_tls_cert", tls_cert.as_ref())?;
    readable("fdb_tls_key", tls_key.as_ref())?;
    readable("fdb_tls_ca", tls_ca.as_ref())
}

fn readable(setting: &str, file: Option<&PathBuf>) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    match fs::read(file) {
        Ok(text) if text.is_empty() => {
            Err(Failure::Settings(format!("{setting} {} is empty", file.display())))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::Settings(format!("{setting} {} cannot be read: {error}", file.display()))),
    }
}
