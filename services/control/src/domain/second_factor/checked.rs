//! The result of checking a second factor (code, recovery code or passkey), and its errors at a sign-in and in a session.

use super::super::passkeys::PasskeyRequest;
use super::super::{Error, Result};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::domain) enum FactorCheck {
    NotNeeded,
    Missing,
    Right,
    /// Right; the account had another factor already, and keeps its recovery codes.
    RightWithOldCodes,
    Wrong,
    Passkey,
    PasskeyWrong,
    /// The signature counter of the passkey went back.
    PasskeyCopied,
    /// The password was changed since the passkey was last used with it, so the passkey alone does not sign in.
    PasskeyNeedsPassword,
    /// Too many codes were wrong before, so this one was not checked.
    TooMany {
        until_ms: u64,
    },
}

impl FactorCheck {
    pub(in crate::domain) fn passes(self) -> bool {
        matches!(self, Self::NotNeeded | Self::Right | Self::RightWithOldCodes | Self::Passkey)
    }

    pub(in crate::domain) fn is_refusal(self) -> bool {
        !self.passes() && self != Self::Missing
    }

    pub(in crate::domain) fn at_sign_in(self, now_ms: u64, asked: Option<PasskeyRequest>) -> Result<()> {
        match self {
            Self::NotNeeded | Self::Right | Self::RightWithOldCodes | Self::Passkey => Ok(()),
            Self::Missing => Err(Error::CodeNeeded(asked.map(Box::new))),
            Self::Wrong => Err(Error::CodeWrong),
            Self::PasskeyWrong | Self::PasskeyNeedsPassword => Err(Error::PasskeyWrong(PASSKEY_WRONG)),
            Self::PasskeyCopied => Err(Error::PasskeyWrong(PASSKEY_COPIED)),
            Self::TooMany { until_ms } => Err(too_many(until_ms, now_ms)),
        }
    }

    pub(in crate::domain) fn in_session(self, now_ms: u64) -> Result<()> {
        match self {
            Self::NotNeeded | Self::Right | Self::RightWithOldCodes | Self::Passkey => Ok(()),
            Self::Missing => Err(Error::field("code", "is missing: your account has a second factor")),
            Self::Wrong => Err(Error::field("code", "is not right, or was used before")),
            Self::PasskeyWrong | Self::PasskeyNeedsPassword => Err(Error::field("passkey", PASSKEY_WRONG)),
            Self::PasskeyCopied => Err(Error::field("passkey", PASSKEY_COPIED)),
            Self::TooMany { until_ms } => Err(too_many(until_ms, now_ms)),
        }
    }
}

const PASSKEY_WRONG: &str =
    "the answer of the passkey is not right, was used before, or came too late: try again";
const PASSKEY_COPIED: &str = "the passkey may have been copied, because its signature counter went back: use another factor, and remove it";

fn too_many(until_ms: u64, now_ms: u64) -> Error {
    Error::TooManyCodes(until_ms.saturating_sub(now_ms).div_ceil(1_000).max(1))
}
