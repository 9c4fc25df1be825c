//! Splits a token into its three parts and decodes them (RFC 7515 section 7.1).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::TokenRefusal;
use crate::limits::TOKEN_BYTES_MAX;
use crate::model::JwtAlgorithm;

/// A parsed token; nothing in it is to be trusted before its signature is checked.
pub struct JsonWebToken<'a> {
    pub(super) algorithm: JwtAlgorithm,
    pub(super) key: Option<String>,
    pub(super) claims: Map<String, Value>,
    pub(super) signed: &'a [u8],
    pub(super) signature: Vec<u8>,
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

impl<'a> JsonWebToken<'a> {
    /// # Errors
    /// [`TokenRefusal::Malformed`], or [`TokenRefusal::Algorithm`] for algorithms that are never
    /// accepted, such as `none`.
    pub fn parse(password: &'a [u8]) -> Result<Self, TokenRefusal> {
        if password.len() > TOKEN_BYTES_MAX {
            return Err(TokenRefusal::Malformed);
        }
        let dot = password.iter().rposition(|byte| *byte == b'.').ok_or(TokenRefusal::Malformed)?;
        let (signed, signature) = (&password[..dot], &password[dot + 1..]);
        let dot = signed.iter().position(|byte| *byte == b'.').ok_or(TokenRefusal::Malformed)?;
        let header: TokenHeader = json(&signed[..dot])?;
        if header.crit.is_some() {
            return Err(TokenRefusal::Malformed);
        }
        let algorithm = match header.alg.as_str() {
            "HS256" => JwtAlgorithm::Hs256,
            "RS256" => JwtAlgorithm::Rs256,
            "ES256" => JwtAlgorithm::Es256,
            _ => return Err(TokenRefusal::Algorithm),
        };
        let (claims, signature) = (json(&signed[dot + 1..])?, decode(signature)?);
        Ok(Self { algorithm, key: header.kid, claims, signed, signature })
    }

    #[must_use]
    pub fn claims(&self) -> &Map<String, Value> {
        &self.claims
    }

    #[must_use]
    pub fn is_likely(password: &[u8]) -> bool {
        // `{"` in base64.
        password.starts_with(b"eyJ") && password.iter().filter(|byte| **byte == b'.').count() == 2
    }
}

fn json<T: for<'de> Deserialize<'de>>(part: &[u8]) -> Result<T, TokenRefusal> {
    serde_json::from_slice(&decode(part)?).map_err(|_| TokenRefusal::Malformed)
}

fn decode(part: &[u8]) -> Result<Vec<u8>, TokenRefusal> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenRefusal::Malformed)
}
