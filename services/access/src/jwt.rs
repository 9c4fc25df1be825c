//! JSON web tokens (JWT, RFC 7519) as passwords: issuers, signature checks, claims, and when to
//! fetch keys.
//!
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

use crate::limits::USER_BYTES_MAX;

/// The tenant sees the text, the client does not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    #[error(
        "the password is not a JWT in compact form, is longer than 16 KiB, or has critical extensions (crit): send the issuer's token unchanged"
    )]
    Malformed,
    #[error(
        "the issuer's record does not allow the token's alg for its key: sign with an allowed algorithm, or add this one"
    )]
    Algorithm,
    /// When the issuer has a key set, the caller then calls [`Refresh::key_unknown`].
    #[error("the issuer has no key with the token's kid: add the key to the issuer's record or key set")]
    UnknownKey,
    #[error(
        "the token's signature does not match the issuer's key: another key signed it, or it was changed on the way"
    )]
    Signature,
    #[error("the token has expired (exp): the client must request a new one")]
    Expired,
    #[error(
        "the token is not valid yet (nbf): compare the clocks of issuer and server, or raise the leeway of the record"
    )]
    NotYet,
    #[error(
        "the token's iss differs from the issuer's record: use a token of this issuer, or correct the record"
    )]
    Issuer,
    #[error(
        "the token's aud names no audience of the issuer's record: request a token for one of them, or add this one"
    )]
    Audience,
    #[error("the token's claim {0:?} is missing or invalid: the issuer must set it as the record requires")]
    Claim(Box<str>),
    #[error("the token's user name has more than {USER_BYTES_MAX} bytes: the issuer must set a shorter one")]
    LongUserName,
    #[error("the token is for another client id or user name: connect with the ones that it names")]
    Client,
}

#[cfg(test)]
mod tests;
