//! Checks of client certificates against a broker's own authorities (RFC 5280).
//!
//! The TLS handshake at the gateway proves that the client has the key of its certificate, and this
//! module checks the issuer, the purpose, the dates and the revocation lists, and extracts the user
//! name.
//!
//! An outdated revocation list still revokes, and leaves other certificates valid, because a
//! forgotten renewal must not lock out all devices at once.

mod authority;
mod names;
mod revocation;

use rustls_pki_types::CertificateDer;
use webpki::EndEntityCert;

pub use authority::{Authority, chain};

/// Issuer and serial number, which name a certificate (RFC 5280, section 4.1.2.2). A connection keeps
/// them, because a later revocation list may name them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateId {
    issuer: Box<[u8]>,
    serial: Box<[u8]>,
}

impl CertificateId {
    #[must_use]
    pub fn of(der: &CertificateDer<'_>) -> Option<Self> {
        let certificate = EndEntityCert::try_from(der).ok()?;
        Some(Self { issuer: certificate.issuer().into(), serial: certificate.serial().into() })
    }
}

/// The tenant sees the text, the client does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateRefusal {
    #[error("the certificate is damaged or uses an unknown algorithm: issue a new one")]
    Malformed,
    #[error(
        "the certificate has version 1, which states no purpose: issue one of version 3 (openssl x509 -req -extfile ...)"
    )]
    Version,
    #[error(
        "no client CA of the broker issued the certificate, or an intermediate certificate is missing: add it to the client CA"
    )]
    UnknownIssuer,
    #[error("the certificate, or one above it, has expired: issue a new one")]
    Expired,
    #[error("the certificate, or one above it, is not valid yet: compare its start with the server's clock")]
    NotYet,
    #[error("the certificate, or one above it, is on a revocation list of the client CA: issue a new one")]
    Revoked,
    #[error(
        "a revocation list of the client CA has a wrong signature, so the certificate cannot be checked: store the list again"
    )]
    RevocationList,
    #[error(
        "the certificate is not for clients: issue one for digital signatures and client authentication (extendedKeyUsage=clientAuth)"
    )]
    Purpose,
    #[error(
        "the certificate has no usable user name in the field that the client CA's record names: issue one with it, or name another field"
    )]
    NoUser,
}

#[cfg(test)]
mod tests;
