//! Converts settings into options of the NATS client.

use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use async_nats::rustls::pki_types::pem::PemObject;
use async_nats::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use async_nats::rustls::{self, ClientConfig, RootCertStore};
use async_nats::{ConnectOptions, ServerAddr};

use crate::limits::FabricLimits;
use crate::settings::{Credentials, FabricSettings, NatsTls, SettingsError};

/// Commands queued between this crate and the NATS client. Further commands stay in the outbox,
/// which counts them.
const COMMANDS: usize = 64;
/// Messages of one subscription between the NATS client and this crate.
const MESSAGES: usize = 64 * 1024;

impl FabricSettings {
    /// Finds the errors that show without a server, also those of the files.
    ///
    /// # Errors
    ///
    /// A setting is not allowed, or a file is missing or wrong.
    pub fn check(&self) -> Result<(), SettingsError> {
        check(self).map(drop)
    }
}

pub(crate) fn check(settings: &FabricSettings) -> Result<(Vec<ServerAddr>, ConnectOptions), SettingsError> {
    check_limits(&settings.limits)?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if settings.region.is_empty() || settings.region.len() > 64 || !settings.region.chars().all(is_word) {
        return Err(SettingsError::Region(settings.region.clone()));
    }
    if settings.pod_name.len() > 128 || settings.pod_name.chars().any(char::is_control) {
        return Err(SettingsError::PodName(settings.pod_name.clone()));
    }
    if settings.pod.0 == 0 {
        return Err(SettingsError::PodId);
    }
    if settings.servers.is_empty() {
        return Err(SettingsError::NoServer);
    }
    let servers = settings.servers.iter().map(|server| address(server)).collect::<Result<_, _>>()?;
    // A server may require TLS. Fails if the process has installed a provider before, which is as
    // good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = base(settings);
    let options = credentials(options, &settings.credentials)?;
    let options = match &settings.tls {
        Some(tls) => secure(options, tls)?,
        None => options,
    };
    Ok((servers, options))
}

fn base(settings: &FabricSettings) -> ConnectOptions {
    let limits = &settings.limits;
    ConnectOptions::new()
        .name(format!("millrace {} {}", settings.pod_name, settings.pod))
        .no_echo()
        .retry_on_initial_connect()
        .ignore_discovered_servers()
        .retain_servers_order()
        .skip_subject_validation(true)
        .client_capacity(COMMANDS)
        .subscription_capacity(MESSAGES)
        .ping_interval(Duration::from_millis(limits.ping_ms.into()))
        .connection_timeout(Duration::from_millis(limits.connect_timeout_ms.into()))
}

fn check_limits(limits: &FabricLimits) -> Result<(), SettingsError> {
    let wrong = |reason| Err(SettingsError::Limits(reason));
    if limits.heartbeat_ms == 0 || limits.ping_ms == 0 || limits.hello_ms == 0 {
        return wrong("heartbeat_ms, ping_ms and hello_ms must be more than 0");
    }
    if limits.outage_ms_max >= limits.heartbeat_ms.saturating_mul(32) {
        return wrong("outage_ms_max must be less than 32 times heartbeat_ms");
    }
    if limits.pod_gone_ms <= limits.hello_ms {
        return wrong("pod_gone_ms must be more than hello_ms");
    }
    if limits.part_bytes_max < 1024 || limits.batch_bytes_max < 1024 {
        return wrong("batch_bytes_max and part_bytes_max must be 1024 at least");
    }
    if limits.message_bytes_max > 1 << 30 || limits.message_bytes_max > limits.parts_bytes_max {
        return wrong("message_bytes_max must be parts_bytes_max and 1 GiB at most");
    }
    Ok(())
}

fn address(server: &str) -> Result<ServerAddr, SettingsError> {
    let shown = server.rsplit('@').next().unwrap_or_default().to_owned();
    let Ok(address) = ServerAddr::from_str(server) else {
        return Err(SettingsError::Server { server: shown });
    };
    if address.has_user_pass() || server.contains('@') {
        return Err(SettingsError::Secret { host: address.host().into() });
    }
    if address.is_websocket() || address.host().is_empty() {
        return Err(SettingsError::Server { server: shown });
    }
    Ok(address)
}

fn credentials(options: ConnectOptions, credentials: &Credentials) -> Result<ConnectOptions, SettingsError> {
    Ok(match credentials {
        Credentials::None => options,
        Credentials::Password { user, password } => options.user_and_password(user.clone(), password.clone()),
        Credentials::Token(token) => options.token(token.clone()),
        Credentials::NkeyFile(path) => {
            const WHAT: &str = "the NKey file";
            let text = read(WHAT, path)?;
            let seed = text.lines().map(str::trim).find(|line| line.starts_with('S'));
            options.nkey(seed.ok_or_else(|| file(WHAT, path, &"it has no line with a seed (S...)"))?.into())
        }
        Credentials::CredsFile(path) => {
            const WHAT: &str = "the credentials file";
            let text = read(WHAT, path)?;
            options.credentials(&text).map_err(|error| file(WHAT, path, &error))?
        }
    })
}

/// Reads the files only to refuse unusable files early; the client reads them again.
fn secure(options: ConnectOptions, tls: &NatsTls) -> Result<ConnectOptions, SettingsError> {
    let mut options = options.require_tls(true);
    let mut roots = RootCertStore::empty();
    if let Some(ca) = &tls.ca {
        for certificate in certificates("the certificate file of the authority", ca)? {
            roots.add(certificate).map_err(|error| file("the certificate of the authority", ca, &error))?;
        }
        options = options.add_root_certificates(ca.clone());
    }
    if let Some((chain_path, key_path)) = &tls.identity {
        let chain = certificates("the certificate file", chain_path)?;
        let key = PrivateKeyDer::from_pem_slice(read("the key file", key_path)?.as_bytes());
        let key = key.map_err(|error| file("the key file", key_path, &error))?;
        ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|error| file("the key file", key_path, &error))?;
        options = options.add_client_certificate(chain_path.clone(), key_path.clone());
    }
    Ok(options)
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, SettingsError> {
    let text = read(what, path)?;
    let all = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| file(what, path, &error))?;
    if all.is_empty() { Err(file(what, path, &"it has no certificate")) } else { Ok(all) }
}

fn read(what: &'static str, path: &Path) -> Result<String, SettingsError> {
    fs::read_to_string(path).map_err(|error| file(what, path, &error))
}

fn file(what: &'static str, path: &Path, reason: &dyn ToString) -> SettingsError {
    SettingsError::File { what, path: path.into(), reason: reason.to_string() }
}
