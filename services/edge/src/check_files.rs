//! Reads the files that a configuration names, for a check without a start.

use millrace_fabric::FabricSettings;

use crate::authenticator::Authenticator;
use crate::config::Config;
use crate::start::StartError;
use crate::tls::Tls;

/// Reads the files that [`crate::start`] would read: a certificate only if a listener uses TLS.
///
/// # Errors
///
/// A file is missing, cannot be read, or has other content than expected.
pub fn check_files(config: &Config) -> Result<(), StartError> {
    Authenticator::check_files(&config.authentication)?;
    config.tls_in_use().map(Tls::start).transpose()?;
    let checked = config.fabric.as_ref().map(FabricSettings::check).transpose();
    checked.map(drop).map_err(|error| StartError(error.to_string()))
}
