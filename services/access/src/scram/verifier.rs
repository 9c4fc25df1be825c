use std::num::NonZeroU32;

use ring::{digest, hmac, pbkdf2};

use crate::limits::SCRAM_ITERATIONS;
use crate::model::{HiddenBytes, ScramVerifier};

const ROUNDS: NonZeroU32 = NonZeroU32::new(SCRAM_ITERATIONS).expect("not zero");

/// Derives the verifier to store for a password; `salt` must be random. Takes tens of milliseconds,
/// too long for an event loop.
#[must_use]
pub fn verifier(password: &str, salt: [u8; 16]) -> ScramVerifier {
    derive(password, salt, ROUNDS)
}

pub(super) fn derive(password: &str, salt: [u8; 16], iterations: NonZeroU32) -> ScramVerifier {
    // A password that SASLprep rejects is used unchanged, as most implementations do, because
    // client and server must agree.
    let prepared = stringprep::saslprep(password).unwrap_or(password.into());
    let mut salted = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, prepared.as_bytes(), &mut salted);
    let client_key = hmac(&salted, b"Client Key");
    ScramVerifier {
        iterations: iterations.get(),
        salt: HiddenBytes(salt),
        stored_key: HiddenBytes(hash(&client_key)),
        server_key: HiddenBytes(hmac(&salted, b"Server Key")),
    }
}

pub(super) fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message);
    array(tag.as_ref())
}

pub(super) fn hash(message: &[u8]) -> [u8; 32] {
    array(digest::digest(&digest::SHA256, message).as_ref())
}

fn array(bytes: &[u8]) -> [u8; 32] {
    let mut array = [0; 32];
    array.copy_from_slice(bytes);
    array
}
