//! One SCRAM exchange, from the client's first message to its proof.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ScramRefusal;
use super::message::{Final, First};
use super::verifier::{hash, hmac};
use crate::limits::SCRAM_ITERATIONS;
use crate::model::{HiddenBytes, ScramVerifier};

pub const NONCE_BYTES: usize = 18;

/// Derives the salts of unknown users. The key must never change, because a changing salt would
/// reveal that the user does not exist.
#[derive(Clone)]
pub struct FakeKey(pub [u8; 32]);

pub(super) struct ScramExchange {
    pub(super) user: Box<str>,
    gs2_header: Box<str>,
    nonce: String,
    /// Both first messages, which the client's proof covers.
    signed: String,
    verifier: ScramVerifier,
    is_known: bool,
}

impl ScramExchange {
    /// Also returns the server's first message.
    pub(super) fn new(
        first: First,
        verifier: Option<&ScramVerifier>,
        fake: &FakeKey,
        server_nonce: &str,
    ) -> (Self, String) {
        let is_known = verifier.is_some();
        let verifier = verifier.cloned().unwrap_or_else(|| fake.verifier(&first.user));
        let nonce = format!("{}{server_nonce}", first.nonce);
        let salt = STANDARD.encode(verifier.salt.0);
        let message = format!("r={nonce},s={salt},i={}", verifier.iterations);
        let signed = format!("{},{message}", first.bare);
        let (user, gs2_header) = (first.user, first.gs2_header);
        (Self { user, gs2_header, nonce, signed, verifier, is_known }, message)
    }

    pub(super) fn finish(&self, message: &[u8]) -> Result<String, ScramRefusal> {
        let last = Final::parse(message)?;
        if last.nonce != self.nonce || last.binding != self.gs2_header.as_bytes() {
            return Err(ScramRefusal::Malformed);
        }
        let signed = format!("{},{}", self.signed, last.without_proof);
        let signature = hmac(&self.verifier.stored_key.0, signed.as_bytes());
        let mut client_key = last.proof;
        client_key.iter_mut().zip(signature).for_each(|(byte, mask)| *byte ^= mask);
        let is_right = HiddenBytes(hash(&client_key)) == self.verifier.stored_key;
        if !(is_right && self.is_known) {
            return Err(ScramRefusal::Proof);
        }
        Ok(format!("v={}", STANDARD.encode(hmac(&self.verifier.server_key.0, signed.as_bytes()))))
    }
}

impl FakeKey {
    /// With one key for all brokers, a tenant could learn at its own broker what the fake salt of a
    /// name looks like.
    #[must_use]
    pub fn of_broker(region: &[u8; 32], broker: u64) -> Self {
        Self(hmac(region, &broker.to_be_bytes()))
    }

    fn verifier(&self, user: &str) -> ScramVerifier {
        let random = hmac(&self.0, user.as_bytes());
        let mut salt = [0; 16];
        salt.copy_from_slice(&random[..16]);
        ScramVerifier {
            iterations: SCRAM_ITERATIONS,
            salt: HiddenBytes(salt),
            stored_key: HiddenBytes(hash(&random)),
            server_key: HiddenBytes(random),
        }
    }
}

impl std::fmt::Debug for FakeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}
