//! SCRAM-SHA-256 (RFC 5802, RFC 7677) as enhanced authentication of MQTT 5.0 (section 4.12). The
//! client proves that it knows the password without sending it, and the server proves that it knows
//! the client's verifier.
//!
//! | packet | carries | here |
//! |---|---|---|
//! | CONNECT, or AUTH 0x19 to authenticate again | client-first-message | [`Enhanced::begin`] returns the user whose verifier to look up |
//! | AUTH 0x18 | server-first-message | [`Enhanced::challenge`] returns it |
//! | AUTH 0x18 | client-final-message | [`Enhanced::verify_proof`] |
//! | CONNACK, or AUTH 0x00 | server-final-message | [`Enhanced::verify_proof`] returns it |
//!
//! An unknown user gets a fake salt that never changes, and fails at the proof like a user with a
//! wrong password. Channel binding is not offered, because TLS ends at the gateway.

mod enhanced;
mod exchange;
mod message;
mod verifier;

pub use enhanced::{Enhanced, ScramAccepted};
pub use exchange::{FakeKey, NONCE_BYTES};
pub use verifier::verifier;

pub const METHOD: &str = "SCRAM-SHA-256";

/// The client gets "not authorized" (0x87), except for [`ScramRefusal::Order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramRefusal {
    #[error("the authentication data is no SCRAM message of this step: check the client's SCRAM library")]
    Malformed,
    #[error(
        "the client requires channel binding, an authorization identity or an extension of SCRAM: switch it off in the client"
    )]
    Unsupported,
    #[error(
        "the user name or the password is wrong, or the credential is disabled: compare the client's settings with the credential"
    )]
    Proof,
    #[error("a re-authentication names another user: connect anew to change the user")]
    OtherUser,
    /// The client gets a protocol error (0x82).
    #[error("the AUTH packet does not belong to this step of the exchange: start again with a CONNECT")]
    Order,
}

#[cfg(test)]
mod tests;
