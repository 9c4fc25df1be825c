//! Requests and answers about second factors, as the API shows them.

use super::super::passkeys::{PasskeyAssertion, Purposed};
use crate::secret::{Hash, Secret};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SecondFactor {
    /// Whether signing in with the password asks for a second factor: a code of an authenticator app, or a passkey.
    pub enabled: bool,
    /// Since when the oldest of them is in force, in unix milliseconds; null: there is none.
    pub enabled_at: Option<u64>,
    /// Since when the authenticator app is in force, in unix milliseconds; null: there is none.
    pub app_enabled_at: Option<u64>,
    pub passkeys: usize,
    /// Recovery codes that were not used.
    pub recovery_codes_left: usize,
}

/// The account whose second factor an operator removes.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecondFactorRemoval {
    #[schema(example = "ann@example.org", format = Email, max_length = 254)]
    pub email: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FirstCode {
    /// The six digits that the device shows.
    #[schema(value_type = String, format = Password, example = "492039")]
    pub code: Secret,
}

/// A password, and the second factor of an account that has one: it shows that the request comes from the person.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    #[schema(value_type = String, format = Password)]
    pub password: Secret,
    /// The six digits that the device shows, or a recovery code.
    #[schema(value_type = Option<String>, format = Password, example = "492039", max_length = 64)]
    pub code: Option<Secret>,
    /// Instead of `code`: the answer of a passkey to the challenge of POST /me/passkeys/challenge.
    pub passkey: Option<PasskeyAssertion>,
}

pub(in crate::domain) struct PresentedFactor<'a> {
    pub(in crate::domain) code: Option<&'a Secret>,
    pub(in crate::domain) passkey: Option<&'a PasskeyAssertion>,
    /// The challenge of the passkey must have this purpose.
    pub(in crate::domain) purpose: Purposed<'a>,
}

impl Proof {
    pub(in crate::domain) fn shown<'a>(&'a self, sign_in: &'a Hash) -> PresentedFactor<'a> {
        let (code, passkey) = (self.code.as_ref(), self.passkey.as_ref());
        PresentedFactor { code, passkey, purpose: Purposed::InSession(sign_in) }
    }
}

/// The secret for a device. It is shown once, and in force when the first code is confirmed.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeviceKey {
    /// The secret in Base32, to be typed in.
    #[schema(value_type = String, example = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP")]
    pub secret: Secret,
    /// The same for authenticator apps, as a QR code shows it.
    #[schema(value_type = String, example = "otpauth://totp/Millrace:ann%40example%2Eorg?secret=JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP&issuer=Millrace&algorithm=SHA1&digits=6&period=30")]
    pub uri: Secret,
}

/// Recovery codes, which are shown once. Each replaces a code of the device or a passkey once.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecoveryCodes {
    /// The codes. Empty if the account has some already, because a passkey came first.
    #[schema(value_type = Vec<String>, example = json!(["k3vx-9m2c-t7qa-hd5w"]))]
    pub recovery_codes: Vec<Secret>,
}
