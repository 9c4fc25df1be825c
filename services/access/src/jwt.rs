//! JSON web tokens (JWT, RFC 7519) as passwords: issuers, signature checks, claims, and when to
//! fetch keys.
//! An [`Issuer`] is compiled from its record. [`Issuer::verify`] takes the record's own keys
//! ([`Issuer::keys`]), or the [`KeySet`] (JWKS, RFC 7517) that the caller fetched last.
//!
//! The *key* determines the algorithm of the signature check, and the token and the record must
//! both name the same algorithm. A token therefore cannot choose how it is checked (RFC 8725
//! section 3.1). `exp` is required, and only the compact form of JWS without extensions is
//! accepted.

mod claims;
mod issuer;
mod key;
mod key_set;
mod refresh;
mod token;

pub use claims::Identity;
pub use issuer::Issuer;
pub use key_set::{KeySet, KeySetError};
pub use refresh::Refresh;
pub use token::JsonWebToken;

/// The tenant sees the text, the client does not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    #[error("the password is not a JWT in compact form, or it is too long, or has critical extensions")]
    Malformed,
    #[error("the token's alg is not one that the issuer's record allows for its key")]
    Algorithm,
    /// When the issuer has a key set, the caller then calls [`Refresh::key_unknown`].
    #[error("the issuer has no key of the token's kid")]
    UnknownKey,
    #[error("the token's signature is wrong")]
    Signature,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet (nbf)")]
    NotYet,
    #[error("the token's iss is not the one in the issuer's record")]
    Issuer,
    #[error("the token's aud has no audience of the issuer's record")]
    Audience,
    #[error("the token's claim {0:?} is missing or invalid")]
    Claim(Box<str>),
    #[error("the token is for another client id or user name")]
    Client,
}

#[cfg(test)]
mod tests;
