//! An issuer of tokens, compiled from its record.

use super::claims::{Identity, check};
use super::key::VerifyingKey;
use super::{JsonWebToken, KeySet, TokenRefusal};
use crate::model::{Invalid, JwtIssuer, JwtKey};

#[derive(Clone, Debug)]
pub struct Issuer {
    record: JwtIssuer,
    keys: Option<KeySet>,
}

impl Issuer {
    pub fn new(record: JwtIssuer) -> Result<Self, Vec<Invalid>> {
        record.validate()?;
        let invalid =
            |field: &str, what: &str| vec![Invalid { field: format!("key.{field}"), what: what.to_owned() }];
        let key = VerifyingKey::of(&record.key).map_err(|(field, what)| invalid(field, what))?;
        if key.as_ref().is_some_and(|key| !record.algorithms.contains(&key.algorithm())) {
            return Err(invalid(
                "pem",
                "is a key for none of the record's algorithms: add the key's algorithm, or give another key",
            ));
        }
        Ok(Self { record, keys: key.map(KeySet::fixed) })
    }

    #[must_use]
    pub fn record(&self) -> &JwtIssuer {
        &self.record
    }

    /// `None` when the keys must be fetched from [`Issuer::key_set_url`].
    #[must_use]
    pub fn keys(&self) -> Option<&KeySet> {
        self.keys.as_ref()
    }

    #[must_use]
    pub fn key_set_url(&self) -> Option<&str> {
        match &self.record.key {
            JwtKey::Jwks { url } => Some(url),
            _ => None,
        }
    }

    /// False when the token, which is still unverified, names another issuer: trying this issuer's
    /// keys would be in vain.
    #[must_use]
    pub fn may_have_issued(&self, token: &JsonWebToken<'_>) -> bool {
        let is_named =
            || token.claims.get("iss").and_then(|iss| iss.as_str()) == self.record.issuer.as_deref();
        self.record.enabled && (self.record.issuer.is_none() || is_named())
    }

    /// The caller has skipped the issuers for which [`Issuer::may_have_issued`] is false.
    pub fn verify(
        &self,
        token: &JsonWebToken<'_>,
        keys: &KeySet,
        now_s: u64,
    ) -> Result<Identity, TokenRefusal> {
        if !self.record.algorithms.contains(&token.algorithm) {
            return Err(TokenRefusal::Algorithm);
        }
        let key = keys.find(token.key.as_deref(), token.algorithm).ok_or(TokenRefusal::UnknownKey)?;
        if !key.verify(token.signed, &token.signature) {
            return Err(TokenRefusal::Signature);
        }
        check(&self.record, &token.claims, now_s)
    }
}
