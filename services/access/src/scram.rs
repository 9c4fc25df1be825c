//! SCRAM-SHA-256 (RFC 5802, RFC 7677) as enhanced authentication of MQTT 5.0 (section 4.12): a client proves that it knows the password
//! without sending it, and the server that it knows the user.
//!
//! | packet | carries | here |
//! |---|---|---|
//! | CONNECT, or AUTH 0x19 to authenticate anew | client-first-message | [`Enhanced::begin`] says whose verifier to look up |
//! | AUTH 0x18 | server-first-message | [`Enhanced::found`] makes it |
//! | AUTH 0x18 | client-final-message | [`Enhanced::proceed`] |
//! | CONNACK, or AUTH 0x00 | server-final-message | is its answer |
//!
//! Users that do not exist have a salt too, always the same one, and fail at the proof like everybody with a wrong password. Channel
//! binding is not offered: TLS ends at the gateway.

mod enhanced;
mod exchange;
mod message;
mod verifier;

pub use enhanced::{Accepted, Enhanced};
pub use exchange::{FakeKey, NONCE_BYTES};
pub use verifier::verifier;

/// The name of the method in CONNECT and AUTH.
pub const METHOD: &str = "SCRAM-SHA-256";

/// Why a client is not who it says. All but [`Refusal::Order`] are "not authorized" (0x87) to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not a message of RFC 5802 section 7.
    #[error("the authentication data is not a SCRAM message of this step")]
    Malformed,
    /// It asks for channel binding, for acting as somebody else, or for an extension that must be known.
    #[error("channel binding, authorization identities and mandatory extensions of SCRAM are not supported")]
    Unsupported,
    /// The user is not known, may not connect, or the password is wrong.
    #[error("the user or the password is wrong")]
    Proof,
    /// Authenticating anew is not becoming somebody else.
    #[error("a client authenticates anew as the user that it is")]
    OtherUser,
    /// A packet at a time when it means nothing: a protocol error (0x82).
    #[error("an AUTH packet out of turn")]
    Order,
}

#[cfg(test)]
mod tests;
