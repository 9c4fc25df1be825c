//! Secrets that the control plane generates for devices, and the keyed hashes that are stored of
//! them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::model::{HiddenBytes, Secret};

/// Random bytes of a secret: with 192 bits, guessing is hopeless even against a fast hash.
pub const RANDOM_BYTES: usize = 24;

/// Secret scanners recognise leaked secrets by this prefix.
pub const PREFIX: &str = "mr_";

/// Returns 35 characters that need no quoting anywhere; the secret is shown once and never stored.
#[must_use]
pub fn generate(random: &[u8; RANDOM_BYTES]) -> String {
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random))
}

/// Whether a password has the form of a generated secret. If no stored hash matches such a password, the caller refuses it
/// without a slow hash.
#[must_use]
pub fn is_likely(password: &[u8]) -> bool {
    let random = password.strip_prefix(PREFIX.as_bytes());
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    random.is_some_and(|random| random.len() == RANDOM_BYTES / 3 * 4 && random.iter().all(is_letter))
}

/// The region's hash keys, without which a copy of the stored hashes does not suffice to guess
/// secrets.
#[derive(Clone, Default)]
pub struct HashKeys(BTreeMap<u32, [u8; 32]>);

impl HashKeys {
    /// `keys` are random, by their ids; `None` when empty. The highest id hashes new secrets, and
    /// an old key must stay until no credential names it.
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = (u32, [u8; 32])>) -> Option<Self> {
        let keys: BTreeMap<_, _> = keys.into_iter().collect();
        (!keys.is_empty()).then_some(Self(keys))
    }

    #[must_use]
    pub fn hash(&self, secret: &[u8]) -> Secret {
        // Without keys ([`HashKeys::default`]), nothing that the zeros hash or sign is ever valid.
        let (id, key) = self.0.last_key_value().map_or((0, &[0; 32]), |(id, key)| (*id, key));
        Secret::Generated { key: id, hash: HiddenBytes(keyed(key, secret)) }
    }

    /// `purpose` ends with a zero byte and begins no other purpose, so that a hash of one kind of text is valid for no
    /// other.
    #[must_use]
    pub(crate) fn sign(&self, purpose: &[u8], text: &[u8]) -> (u32, [u8; 32]) {
        let (id, key) = self.0.last_key_value().map_or((0, &[0; 32]), |(id, key)| (*id, key));
        (id, keyed(key, &[purpose, text].concat()))
    }

    /// Accepts the newest key only: a copy of the store reveals the keys from before the operator configured a secret that
    /// is outside the store.
    #[must_use]
    pub(crate) fn is_signed(&self, key: u32, purpose: &[u8], text: &[u8], hash: &[u8; 32]) -> bool {
        let signed = |key| HiddenBytes(keyed(key, &[purpose, text].concat()));
        let newest = self.0.last_key_value().filter(|(id, _)| **id == key);
        newest.is_some_and(|(_, key)| signed(key) == HiddenBytes(*hash))
    }

    /// Takes a tenth of a microsecond; the comparison is in constant time.
    #[must_use]
    pub fn verify(&self, key: u32, hash: &HiddenBytes<32>, secret: &[u8]) -> bool {
        self.0.get(&key).is_some_and(|key| HiddenBytes(keyed(key, secret)) == *hash)
    }
}

impl std::fmt::Debug for HashKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HashKeys").field(&self.0.keys()).finish()
    }
}

fn keyed(key: &[u8; 32], secret: &[u8]) -> [u8; 32] {
    blake3::keyed_hash(key, secret).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(ids: &[u8]) -> HashKeys {
        HashKeys::new(ids.iter().map(|id| ((*id).into(), [*id; 32]))).unwrap()
    }

    fn verify(keys: &HashKeys, stored: &Secret, secret: &[u8]) -> bool {
        let Secret::Generated { key, hash } = stored else { return false };
        keys.verify(*key, hash, secret)
    }

    #[test]
    fn a_secret_is_plain_text_of_all_the_randomness() {
        let secret = generate(&[0xFB; RANDOM_BYTES]);
        assert_eq!(secret, "mr_-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7");
        let other = generate(&[0; RANDOM_BYTES]);
        assert!(other.len() == secret.len() && other != secret);
        assert!(is_likely(secret.as_bytes()) && is_likely(other.as_bytes()));
        for chosen in ["", "mr_", "mr_short", "a sentence that somebody has chosen", &format!("{secret}A")] {
            assert!(!is_likely(chosen.as_bytes()), "{chosen}");
        }
        assert!(other.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)));
    }

    #[test]
    fn only_the_same_secret_is_right_and_only_with_its_key() {
        let stored = keys(&[1]).hash(b"mr_abc");
        assert!(verify(&keys(&[1]), &stored, b"mr_abc"));
        for wrong in [&b""[..], b"mr_abC", b"mr_ab", b"mr_abcc"] {
            assert!(!verify(&keys(&[1]), &stored, wrong));
        }
        assert!(!verify(&keys(&[2]), &stored, b"mr_abc"));
        let same_id = HashKeys::new([(1, [9; 32])]).unwrap();
        assert!(!verify(&same_id, &stored, b"mr_abc"));
    }

    #[test]
    fn the_newest_key_hashes_and_the_old_ones_still_verify() {
        let old = keys(&[1]).hash(b"mr_abc");
        let both = keys(&[1, 2]);
        assert!(verify(&both, &old, b"mr_abc"));
        assert!(matches!(both.hash(b"mr_abc"), Secret::Generated { key: 2, .. }));
        assert!(HashKeys::new([]).is_none());
    }

    #[test]
    fn stored_hashes_stay_right() {
        // It is BLAKE3 with the key: who makes credentials elsewhere does the same.
        let stored = serde_json::to_string(&keys(&[1]).hash(b"mr_abc")).unwrap();
        let hash = "U1U6bFYrLSBOjhm33GNp9i22jR89Pw/SWSCjqQwC6aY=";
        assert_eq!(stored, format!(r#"{{"kind":"generated","key":1,"hash":"{hash}"}}"#));
    }
}
