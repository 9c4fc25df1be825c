//! Checks of client certificates against a broker's own authorities (RFC 5280).
//!
//! The TLS handshake at the gateway proves that the client has the key of its certificate. This
//! module checks the issuer, the purpose, the dates and the revocation lists, and extracts the user
//! name.
//!
//! An outdated revocation list still revokes, and leaves other certificates valid, because a
//! forgotten renewal must not lock out all devices at once.

mod authority;
mod names;

pub use authority::{Authority, chain};

/// The tenant sees the text, the client does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateRefusal {
    #[error("the certificate cannot be read")]
    Malformed,
    /// A certificate of version 1 has no extensions, so it does not say its purpose.
    #[error("the certificate is of version 1: make one of version 3 (openssl x509 -req -extfile ...)")]
    Version,
    #[error("the certificate is not of this authority, or an intermediate certificate is missing")]
    UnknownIssuer,
    #[error("the certificate, or one above it, has expired")]
    Expired,
    #[error("the certificate, or one above it, is not valid yet")]
    NotYet,
    #[error("the certificate, or one above it, is revoked")]
    Revoked,
    #[error("a revocation list of the authority cannot be trusted: its signature is wrong")]
    RevocationList,
    #[error(
        "the certificate is not for clients: its key usage must allow digital signatures and client authentication"
    )]
    Purpose,
    #[error("the certificate has no usable user name in the field that the authority's record names")]
    NoUser,
}

#[cfg(test)]
mod tests;
