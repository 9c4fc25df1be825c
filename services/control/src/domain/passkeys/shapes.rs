//! Requests and answers about passkeys, as the API shows them.

use crate::limits::{
    AUTHENTICATOR_DATA_BYTES_MAX, CLIENT_DATA_BYTES_MAX, CREDENTIAL_ID_BYTES_MAX,
    PASSKEY_SIGNATURE_BYTES_MAX, USER_HANDLE_BYTES_MAX,
};
use crate::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A passkey of the caller. The server knows its public key alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Passkey {
    pub id: Uuid,
    #[schema(example = "Laptop")]
    pub name: String,
    /// When it was added, in unix milliseconds.
    pub created_at_ms: u64,
    /// When it was used last, in unix milliseconds; null: never.
    pub last_used_at_ms: Option<u64>,
    /// Whether its provider may copy it to other devices of its owner.
    pub is_synced: bool,
}

/// A credential that may answer.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PasskeyCredential {
    /// Credential id in Base64 for URLs.
    #[schema(example = "kPbZl2rVbq0w3nQd8yYxXg")]
    pub id: String,
    /// How the browser may reach it: values of `AuthenticatorTransport`.
    #[schema(example = json!(["internal"]))]
    pub transports: Vec<String>,
}

/// A challenge for `navigator.credentials.get`. It can be answered once, within 5 minutes.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PasskeyRequest {
    /// `challenge` in Base64 for URLs.
    pub challenge: String,
    /// `rpId`: the host of this server.
    #[schema(example = "console.example.org")]
    pub rp_id: String,
    /// `allowCredentials`. Empty: any passkey that names its account.
    pub credentials: Vec<PasskeyCredential>,
    /// `userVerification`: `required` without a password, otherwise `preferred`.
    #[schema(example = "preferred")]
    pub user_verification: &'static str,
    /// `timeout`, milliseconds.
    #[schema(example = 300_000)]
    pub timeout_ms: u64,
}

/// A challenge for `navigator.credentials.create`. It can be answered once, within 5 minutes.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PasskeyCreation {
    /// `challenge` in Base64 for URLs.
    pub challenge: String,
    /// `rp.id`: the host of this server.
    #[schema(example = "console.example.org")]
    pub rp_id: String,
    /// `user.id` in Base64 for URLs.
    pub user_handle: String,
    /// `user.name` and `user.displayName`.
    #[schema(example = "ann@example.org")]
    pub user_name: String,
    /// `alg` of `pubKeyCredParams`, the preferred one first.
    #[schema(example = json!([-7, -8, -257]))]
    pub algorithms: Vec<i32>,
    /// `excludeCredentials`: passkeys that you have already.
    pub exclude: Vec<PasskeyCredential>,
    /// `timeout`, milliseconds.
    #[schema(example = 300_000)]
    pub timeout_ms: u64,
}

/// A new passkey: the answer of `navigator.credentials.create`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPasskey {
    #[schema(example = "Laptop", min_length = 1, max_length = 100)]
    pub name: String,
    /// `clientDataJSON` in Base64 for URLs.
    #[schema(max_length = 5464)]
    pub client_data: String,
    /// `attestationObject` in Base64 for URLs. Attestation `none` is enough; the server ignores another one.
    #[schema(max_length = 32768)]
    pub attestation_object: String,
    /// The answer of `getTransports()`.
    #[serde(default)]
    #[schema(example = json!(["internal"]), max_items = 16)]
    pub transports: Vec<String>,
}

/// A use of a passkey: the answer of `navigator.credentials.get`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PasskeyAssertion {
    /// `id`: the credential id in Base64 for URLs.
    #[schema(max_length = 1364)]
    pub credential_id: String,
    /// `clientDataJSON` in Base64 for URLs.
    #[schema(max_length = 5464)]
    pub client_data: String,
    /// `authenticatorData` in Base64 for URLs.
    #[schema(max_length = 1368)]
    pub authenticator_data: String,
    /// `signature` in Base64 for URLs.
    #[schema(value_type = String, format = Password, max_length = 684)]
    pub signature: Secret,
    /// `userHandle` in Base64 for URLs. A sign-in without a password needs it.
    #[schema(max_length = 88)]
    pub user_handle: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PasskeyChange {
    #[schema(example = "Laptop", min_length = 1, max_length = 100)]
    pub name: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct PasskeyAdded {
    pub passkey: Passkey,
    /// With the first second factor of the account: recovery codes, which are shown once. Otherwise empty.
    #[schema(value_type = Vec<String>, example = json!(["k3vx-9m2c-t7qa-hd5w"]))]
    pub recovery_codes: Vec<Secret>,
}

/// An assertion whose parts are decoded and of bounded size.
pub(super) struct DecodedAssertion {
    pub(super) credential_id: Vec<u8>,
    pub(super) client_data: Vec<u8>,
    pub(super) authenticator_data: Vec<u8>,
    pub(super) signature: Vec<u8>,
    pub(super) user_handle: Option<Vec<u8>>,
}

impl PasskeyAssertion {
    pub(super) fn decode(&self) -> Option<DecodedAssertion> {
        Some(DecodedAssertion {
            credential_id: decoded(&self.credential_id, CREDENTIAL_ID_BYTES_MAX)?,
            client_data: decoded(&self.client_data, CLIENT_DATA_BYTES_MAX)?,
            authenticator_data: decoded(&self.authenticator_data, AUTHENTICATOR_DATA_BYTES_MAX)?,
            signature: decoded(self.signature.expose(), PASSKEY_SIGNATURE_BYTES_MAX)?,
            user_handle: match &self.user_handle {
                Some(handle) => Some(decoded(handle, USER_HANDLE_BYTES_MAX)?),
                None => None,
            },
        })
    }
}

/// Only the one way to write the bytes is read, so that a credential has one id.
pub(super) fn decoded(text: &str, bytes_max: usize) -> Option<Vec<u8>> {
    if text.len() > bytes_max.div_ceil(3) * 4 {
        return None;
    }
    URL_SAFE_NO_PAD.decode(text).ok().filter(|bytes| bytes.len() <= bytes_max)
}
