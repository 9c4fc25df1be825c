//! Secrets that the server generates or that people choose. `Debug` and error texts never show one.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::BASE64_STANDARD;
use millrace_layers::accounts::keys::HashKey;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};

pub use millrace_access::model::HiddenText as Secret;

pub(crate) type Hash = [u8; 32];

/// The purpose of a hash, so that a hash for one purpose is never valid for another; names are part of stored hashes and
/// never change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    SignIn,
    Csrf,
    Token,
    Invitation,
    Setup,
    SignUp,
    Request,
    Fingerprint,
    Generated,
    Oidc,
    Identity,
    Link,
    RecoveryCode,
    AccountLink,
    Account,
    ClaimToken,
    PasskeyChallenge,
    SignInNetwork,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random bytes")]
pub struct NoEntropy;

/// Omits a secret from every answer. `skip_serializing` would also omit it from the description of requests.
pub(crate) fn is_not_shown<T>(_: &T) -> bool {
    true
}

/// A secret of 256 random bits, in 43 letters, digits, hyphens and underscores.
pub fn generate() -> Result<Secret, NoEntropy> {
    Ok(text_of(&random::<32>()?))
}

pub(crate) fn letters(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn text_of(bytes: &Hash) -> Secret {
    URL_SAFE_NO_PAD.encode(bytes).into()
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Self::SignIn => "sign-in",
            Self::Csrf => "csrf",
            Self::Token => "token",
            Self::Invitation => "invitation",
            Self::Setup => "setup",
            Self::SignUp => "sign-up",
            Self::Request => "request",
            Self::Fingerprint => "fingerprint",
            Self::Generated => "generated",
            Self::Oidc => "oidc",
            Self::Identity => "identity",
            Self::Link => "link",
            Self::RecoveryCode => "recovery-code",
            Self::AccountLink => "account-link",
            Self::Account => "account",
            Self::ClaimToken => "claim-token",
            Self::PasskeyChallenge => "passkey-challenge",
            Self::SignInNetwork => "sign-in-network",
        }
    }
}

#[must_use]
pub fn outside_secret(text: &str) -> [u8; 32] {
    blake3::derive_key("millrace 2026-11 secret_key_file", text.as_bytes())
}

/// Hashes several parts under a key. The lengths of the parts are hashed too, so that parts cannot run into each other.
pub(crate) fn hash(key: &HashKey, purpose: Purpose, parts: &[&[u8]]) -> Hash {
    let mut hasher = blake3::Hasher::new_keyed(&key.key);
    for part in [purpose.name().as_bytes()].iter().chain(parts) {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// A secret that has to be read again, encrypted (ChaCha20-Poly1305, RFC 8439) under a key of the region.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Sealed {
    pub(crate) key: u32,
    /// Nonce and ciphertext in Base64.
    text: String,
}

impl Sealed {
    /// `owner` is what the secret belongs to: for another owner it does not open.
    pub(crate) fn new(key: &HashKey, owner: &[u8], secret: &[u8]) -> Result<Self, NoEntropy> {
        let nonce = random::<NONCE_LEN>()?;
        let mut text = secret.to_vec();
        let (at, about) = (Nonce::assume_unique_for_key(nonce), Aad::from(owner));
        sealing(key)
            .ok_or(NoEntropy)?
            .seal_in_place_append_tag(at, about, &mut text)
            .map_err(|_| NoEntropy)?;
        Ok(Self { key: key.id, text: BASE64_STANDARD.encode([&nonce[..], &text].concat()) })
    }

    /// `None`: it was sealed under another key or for another owner, or is damaged.
    pub(crate) fn open(&self, key: &HashKey, owner: &[u8]) -> Option<Vec<u8>> {
        let bytes = BASE64_STANDARD.decode(&self.text).ok()?;
        let (nonce, text) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut text = text.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = sealing(key)?.open_in_place(nonce, Aad::from(owner), &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }
}

fn sealing(key: &HashKey) -> Option<LessSafeKey> {
    let key = blake3::derive_key("millrace 2026-11 sealed secrets of the control plane", &key.key);
    UnboundKey::new(&CHACHA20_POLY1305, &key).ok().map(LessSafeKey::new)
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], NoEntropy> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| NoEntropy)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_random_and_not_shown() {
        let secret = generate().unwrap();
        assert_eq!(secret.expose().len(), 43);
        assert_ne!(secret, generate().unwrap());
        assert_eq!(format!("{:?}", Some(secret)), "Some((hidden))");
    }

    #[test]
    fn a_sealed_secret_opens_with_its_key_and_for_its_owner_alone() {
        let (key, other) =
            (HashKey { id: 1, key: [1; 32], check: None }, HashKey { id: 2, key: [2; 32], check: None });
        let sealed = Sealed::new(&key, b"ann", b"secret").unwrap();
        let stored = serde_json::to_string(&sealed).unwrap();
        assert!(!stored.contains("secret") && !stored.contains(&BASE64_STANDARD.encode(b"secret")));
        assert_ne!(stored, serde_json::to_string(&Sealed::new(&key, b"ann", b"secret").unwrap()).unwrap());
        let sealed: Sealed = serde_json::from_str(&stored).unwrap();
        assert_eq!(sealed.open(&key, b"ann").as_deref(), Some(&b"secret"[..]));
        assert_eq!(sealed.open(&key, b"bob"), None);
        assert_eq!(sealed.open(&other, b"ann"), None);
        let mut bytes = BASE64_STANDARD.decode(&sealed.text).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        let damaged = Sealed { text: BASE64_STANDARD.encode(bytes), ..sealed };
        assert_eq!(damaged.open(&key, b"ann"), None);
    }

    #[test]
    fn a_hash_is_of_its_key_its_purpose_and_its_parts() {
        let (key, other) =
            (HashKey { id: 1, key: [1; 32], check: None }, HashKey { id: 2, key: [2; 32], check: None });
        let hashes = [
            hash(&key, Purpose::Token, &[b"ab", b"c"]),
            hash(&other, Purpose::Token, &[b"ab", b"c"]),
            hash(&key, Purpose::SignIn, &[b"ab", b"c"]),
            hash(&key, Purpose::Token, &[b"a", b"bc"]),
            hash(&key, Purpose::Token, &[b"abc"]),
        ];
        for (n, one) in hashes.iter().enumerate() {
            assert!(!hashes[..n].contains(one), "{n}");
        }
        assert_eq!(hashes[0], hash(&key, Purpose::Token, &[b"ab", b"c"]));
    }
}
