//! Client certificates, checked against a broker's own authorities (RFC 5280).
//!
//! That the client has the key of its certificate is proven by the TLS handshake, at the gateway. Here is checked who issued it, that
//! it is for clients, valid now, and on no revocation list, and which user it names.
//!
//! A list that is out of date still revokes whom it names: who does not come to renewing it must not lose all devices at once. An authority
//! without a list has revoked nobody.

mod authority;
mod names;

pub use authority::{Authority, chain};

/// Why a certificate lets nobody in. The tenant may see it; the client only sees that it is not authorized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no certificate, or one with something in it that we do not know and must not skip.
    #[error("the certificate cannot be read")]
    Malformed,
    /// Certificates without extensions say not what they are for.
    #[error("the certificate is of version 1: make one of version 3 (openssl x509 -req -extfile ...)")]
    Version,
    /// Nobody of this authority issued it.
    #[error("the certificate is not of this authority, or an intermediate certificate is missing")]
    UnknownIssuer,
    /// It is over, or one above it.
    #[error("the certificate, or one above it, has expired")]
    Expired,
    /// It has not begun, or one above it.
    #[error("the certificate, or one above it, is not valid yet")]
    NotYet,
    /// It was taken back.
    #[error("the certificate, or one above it, is revoked")]
    Revoked,
    /// A revocation list of its authority does not fit the authority.
    #[error("a revocation list of the authority cannot be trusted: its signature is wrong")]
    RevocationList,
    /// It is for servers, or for e-mail.
    #[error(
        "the certificate is not for clients: its key usage must allow digital signatures and client authentication"
    )]
    Purpose,
    /// It does not name a user where the record says.
    #[error("the certificate has no usable name where the user name is to be")]
    NoUser,
}

#[cfg(test)]
mod tests;
