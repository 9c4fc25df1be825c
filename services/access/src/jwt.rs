//! Tokens (JWT, RFC 7519) as passwords: who issued one, what it says of its client, until when.
//!
//! An [`Issuer`] is made of its record once. [`Issuer::verify`] takes the keys: its own ([`Issuer::keys`]), or for an issuer with a
//! key set (JWKS, RFC 7517) the [`KeySet`] that was fetched last. [`Refresh`] says when to fetch; what fetches is not here.
//!
//! The signature is checked with the algorithm of the *key*, and only when the token and the record name that one too: a token cannot
//! choose how it is checked (RFC 8725 section 3.1). `exp` is required. Of the JWS only the compact form is read, without extensions.

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
pub use token::Token;

/// Why a token lets nobody in. The tenant may see it; the client only sees that it is not authorized.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not a signed token of a form that we read.
    #[error("the password is not a JWT in compact form, or it is too long, or has critical extensions")]
    Malformed,
    /// No issuer of the broker signs like that.
    #[error("the token's alg is not one that the issuer's record allows for its key")]
    Algorithm,
    /// The key that it names is not known. For an issuer with a key set: [`Refresh::unknown`].
    #[error("the issuer has no key of the token's kid")]
    UnknownKey,
    /// Somebody else signed it, or it was changed.
    #[error("the token's signature is wrong")]
    Signature,
    /// It is over.
    #[error("the token has expired")]
    Expired,
    /// It has not begun.
    #[error("the token is not valid yet (nbf)")]
    NotYet,
    /// It is of another issuer.
    #[error("the token's iss is not the issuer's")]
    Issuer,
    /// It is for somebody else.
    #[error("the token's aud is none of the issuer's record")]
    Audience,
    /// A claim that is needed is missing or is something else.
    #[error("the token's claim {0:?} is missing, or not what it should be")]
    Claim(Box<str>),
    /// It is another client's.
    #[error("the token is for another client id or user name")]
    Client,
}

#[cfg(test)]
mod tests;
