//! The set of keys (JWKS) that check the tokens of one issuer.

use serde::Deserialize;
use serde_json::Value;

use super::key::{Jwk, VerifyingKey};
use crate::limits::{KEY_ID_BYTES_MAX, KEYS_MAX};
use crate::model::JwtAlgorithm;

#[derive(Clone, Default)]
pub struct KeySet(Vec<(Option<String>, VerifyingKey)>);

#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    #[error("the answer is not a JWK set (RFC 7517 section 5), so it has no keys; check the URL: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the key set has no key for RS256 (2048 to 4096 bits) or ES256: the issuer must publish one")]
    Empty,
}

#[derive(Deserialize)]
struct KeySetDocument {
    keys: Vec<Value>,
}

impl KeySet {
    /// Skips encryption keys, unsupported kinds, keys with very long members, and symmetric keys,
    /// because everybody who reads the set could sign with them.
    pub fn parse(json: &[u8]) -> Result<Self, KeySetError> {
        let document: KeySetDocument = serde_json::from_slice(json)?;
        let jwks = document.keys.into_iter().filter_map(|jwk| serde_json::from_value::<Jwk>(jwk).ok());
        let is_named = |jwk: &Jwk| jwk.kid.as_ref().is_none_or(|kid| kid.len() <= KEY_ID_BYTES_MAX);
        let jwks = jwks.filter(is_named);
        let keys = jwks.filter_map(|jwk| VerifyingKey::from_jwk(&jwk).map(|key| (jwk.kid, key)));
        let keys: Vec<_> = keys.take(KEYS_MAX).collect();
        if keys.is_empty() { Err(KeySetError::Empty) } else { Ok(Self(keys)) }
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        let key = |(kid, key): &(Option<String>, VerifyingKey)| {
            size_of::<Option<String>>() + kid.as_ref().map_or(0, String::len) + key.bytes()
        };
        self.0.iter().map(key).sum()
    }

    pub(super) fn fixed(key: VerifyingKey) -> Self {
        Self(vec![(None, key)])
    }

    /// The key of this id and algorithm; without an id in the token or the key, only while a single
    /// key fits.
    pub(super) fn find(&self, id: Option<&str>, algorithm: JwtAlgorithm) -> Option<&VerifyingKey> {
        let mut fitting = self.0.iter().filter(|(key_id, key)| {
            key.algorithm() == algorithm && (id.is_none() || key_id.is_none() || key_id.as_deref() == id)
        });
        let first = fitting.next();
        let is_only = fitting.next().is_none();
        let named = || {
            self.0
                .iter()
                .find(|(key_id, key)| id.is_some() && key_id.as_deref() == id && key.algorithm() == algorithm)
        };
        if is_only { first } else { named() }.map(|(_, key)| key)
    }
}

impl std::fmt::Debug for KeySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(id, key)| (id, key.algorithm()))).finish()
    }
}
