//! Connect tokens: short-lived MQTT passwords that the control plane signs, for example for a page
//! of the console.
//!
//! A token carries its broker, user name, client id, rules and expiry under a keyed hash
//! (`HashKeys`). Nothing is stored for a token, so checking one reads only the region's keys. A
//! token cannot be revoked before its expiry; closing the broker disconnects its clients.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::model::Rule;
use crate::secrets::generated::HashKeys;

/// Secret scanners recognise leaked tokens by this prefix.
pub const PREFIX: &str = "mct_";
/// Bytes of the longest token: bounds what the server decodes for a stranger.
const BYTES_MAX: usize = 16 * 1024;
/// Separates hashes of tokens from hashes of secrets, which use the same keys.
const PURPOSE: &[u8] = b"millrace connect token v1\0";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectTokenClaims {
    /// The broker's number, not its name: a deleted broker's tokens are no use at a new broker of
    /// the same name.
    #[serde(rename = "b")]
    pub broker: u64,
    #[serde(rename = "u")]
    pub user: String,
    #[serde(rename = "c")]
    pub client_id: String,
    /// All rules of the client, because those of the broker do not apply.
    #[serde(rename = "r")]
    pub rules: Vec<Rule>,
    #[serde(rename = "e")]
    pub expires_at_ms: u64,
    /// Whether the client may have shared subscriptions, which take messages from their other members.
    #[serde(rename = "s", default, skip_serializing_if = "std::ops::Not::not")]
    pub may_share: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectTokenRefusal {
    #[error("this region did not sign it, or it was changed: request a new one")]
    Forged,
    #[error("it is for another broker: request one for this broker")]
    Broker,
    #[error("it has expired: request a new one")]
    Expired,
    #[error("it is for another client id or user name: connect with the ones that it names")]
    Client,
}

#[must_use]
pub fn is_likely(password: &[u8]) -> bool {
    password.starts_with(PREFIX.as_bytes())
}

impl ConnectTokenClaims {
    /// `None` when the token would be too long.
    #[must_use]
    pub fn seal(&self, keys: &HashKeys) -> Option<String> {
        let claims = URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).ok()?);
        let (key, mac) = keys.sign(PURPOSE, claims.as_bytes());
        let token = format!("{PREFIX}{key}.{claims}.{}", URL_SAFE_NO_PAD.encode(mac));
        (token.len() <= BYTES_MAX).then_some(token)
    }

    /// Checks the signature alone: the caller compares broker, expiry and client. Accepts the newest key only, because a
    /// copy of the store reveals those from before `secret_key_file`.
    pub fn open(keys: &HashKeys, token: &[u8]) -> Result<Self, ConnectTokenRefusal> {
        let read = || {
            let text = std::str::from_utf8(token).ok().filter(|text| text.len() <= BYTES_MAX)?;
            let mut parts = text.strip_prefix(PREFIX)?.splitn(3, '.');
            let (key, claims, mac) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
            let mac = URL_SAFE_NO_PAD.decode(mac).ok()?.try_into().ok()?;
            if !keys.is_signed(key, PURPOSE, claims.as_bytes(), &mac) {
                return None;
            }
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
        };
        read().ok_or(ConnectTokenRefusal::Forged)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::{Action, Effect};

    fn keys(id: u8) -> HashKeys {
        HashKeys::new([(u32::from(id), [id; 32])]).unwrap()
    }

    pub(crate) fn token() -> ConnectTokenClaims {
        ConnectTokenClaims {
            broker: 7,
            user: "console:ann".into(),
            client_id: "page-1".into(),
            rules: vec![Rule::new(Effect::Allow, Action::Subscribe, "plant/#")],
            expires_at_ms: 1_000,
            may_share: false,
        }
    }

    #[test]
    fn a_token_says_what_it_was_made_with_and_only_with_its_key() {
        let text = token().seal(&keys(1)).unwrap();
        assert!(is_likely(text.as_bytes()));
        assert_eq!(ConnectTokenClaims::open(&keys(1), text.as_bytes()), Ok(token()));
        let other_key = HashKeys::new([(1, [9; 32])]).unwrap();
        for keys in [keys(2), other_key] {
            assert_eq!(ConnectTokenClaims::open(&keys, text.as_bytes()), Err(ConnectTokenRefusal::Forged));
        }
    }

    #[test]
    fn an_older_key_signs_no_token() {
        let both = HashKeys::new([(1, [1; 32]), (2, [2; 32])]).unwrap();
        let forged = token().seal(&keys(1)).unwrap();
        assert_eq!(ConnectTokenClaims::open(&both, forged.as_bytes()), Err(ConnectTokenRefusal::Forged));
        let text = token().seal(&both).unwrap();
        assert_eq!(ConnectTokenClaims::open(&both, text.as_bytes()), Ok(token()));
    }

    #[test]
    fn a_token_that_was_changed_anywhere_is_none() {
        let text = token().seal(&keys(1)).unwrap();
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let opened = ConnectTokenClaims::open(&keys(1), &changed);
            // The last character of the hash has bits that no byte of the hash uses.
            assert!(opened.is_err() || at + 1 == text.len(), "{at}");
        }
        for wrong in ["", "mct_", "mct_1", "mct_1..", "mct_1.e30.", &"mct_1.A".repeat(9_999)] {
            assert_eq!(
                ConnectTokenClaims::open(&keys(1), wrong.as_bytes()),
                Err(ConnectTokenRefusal::Forged)
            );
        }
    }
}
