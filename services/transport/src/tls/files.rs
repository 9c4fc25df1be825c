//! Loads the certificates, keys and authorities of TLS listeners from files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ProducesTickets, ServerConfig, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DEFAULT_VERSIONS, Error, RootCertStore};

use super::resolver::CertificateResolver;
use super::verifier::Verifier;

/// Protocols that a client may request (ALPN): MQTT by its registered name, MQTT as AWS devices
/// name it, and WebSocket.
const PROTOCOLS: [&[u8]; 3] = [b"mqtt", b"x-amzn-mqtt-ca", b"http/1.1"];
/// Tickets for each handshake: a device has one connection, and each resumption issues a new
/// ticket.
const TICKETS: usize = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// PEM file; if set, an MQTT client must present a certificate of one of these authorities, at each connection.
    pub client_authorities: Option<PathBuf>,
    /// Requests certificates on WebSocket listeners, too; browsers then ask their user for one.
    pub asks_browsers: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read {}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{} has no {what} in PEM", path.display())]
    Lacks { path: PathBuf, what: &'static str },
    #[error("the certificate {} with the key {}: {error}", certificate.display(), key.display())]
    Refused { certificate: PathBuf, key: PathBuf, error: Error },
    #[error("the authorities of client certificates in {}: {error}", path.display())]
    Authorities { path: PathBuf, error: String },
}

#[derive(Debug)]
pub struct Servers {
    pub devices: Arc<ServerConfig>,
    pub browsers: Arc<ServerConfig>,
    ticketer: Arc<dyn ProducesTickets>,
    /// The bytes of the client authorities. When they change, older tickets become invalid.
    authorities: Option<Vec<u8>>,
}

impl Servers {
    /// Reads the files; tickets of `before` stay valid while the client authorities stay the same.
    /// After an error the caller can continue with the old configuration.
    pub fn load(files: &Files, before: Option<&Self>) -> Result<Self, LoadError> {
        let provider = Arc::new(default_provider());
        let refused = |error| LoadError::Refused {
            certificate: files.certificate.clone(),
            key: files.key.clone(),
            error,
        };
        let key = certified_key(files, &provider, refused)?;
        let authorities = files.client_authorities.as_deref().map(read).transpose()?;
        let ticketer = match before.filter(|before| before.authorities == authorities) {
            Some(before) => before.ticketer.clone(),
            None => Ticketer::new().map_err(refused)?,
        };
        let required = match (&files.client_authorities, &authorities) {
            (Some(path), Some(pem)) => Some(required(path, pem, &provider)?),
            _ => None,
        };
        let config = |asks: bool| -> Result<Arc<ServerConfig>, LoadError> {
            let builder = ServerConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(DEFAULT_VERSIONS)
                .map_err(refused)?;
            let verifier = Verifier { provider: provider.clone(), authorities: required.clone() };
            let builder = match asks {
                true => builder.with_client_cert_verifier(Arc::new(verifier)),
                false => builder.with_no_client_auth(),
            };
            let mut config = builder.with_cert_resolver(Arc::new(CertificateResolver(key.clone())));
            config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
            config.session_storage = Arc::new(NoServerSessionStorage {});
            // rustls resumes a session of any listener without verifying a certificate, so a client that must have one gets no ticket.
            let is_verified = asks && required.is_some();
            if !is_verified {
                config.ticketer = ticketer.clone();
            }
            config.send_tls13_tickets = if is_verified { 0 } else { TICKETS };
            Ok(Arc::new(config))
        };
        let (devices, browsers) = (config(true)?, config(files.asks_browsers)?);
        Ok(Self { devices, browsers, ticketer: ticketer.clone(), authorities })
    }
}

fn certified_key(
    files: &Files,
    provider: &CryptoProvider,
    refused: impl Fn(Error) -> LoadError,
) -> Result<Arc<CertifiedKey>, LoadError> {
    let chain = certificates(&files.certificate, &read(&files.certificate)?)?;
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|_| LoadError::Lacks { path: files.key.clone(), what: "private key" })?;
    CertifiedKey::from_der(chain, key, provider).map(Arc::new).map_err(refused)
}

fn required(
    path: &Path,
    pem: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, LoadError> {
    let failed = |error: String| LoadError::Authorities { path: path.to_owned(), error };
    let mut roots = RootCertStore::empty();
    for authority in certificates(path, pem)? {
        roots.add(authority).map_err(|error| failed(error.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| failed(error.to_string()))
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(LoadError::Lacks { path: path.to_owned(), what: "certificate" }),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    std::fs::read(path).map_err(|error| LoadError::Read { path: path.to_owned(), error })
}
